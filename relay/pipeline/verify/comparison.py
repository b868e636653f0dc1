"""One range of the archive compared with the lake: both sides' sums and, if these differ, the rows. Small, and travels to the tasks.

Each statement sees what is committed when it begins. All of them see the same rows: rows that a transaction below the export's bound has
archived stay as they are, and no such row is added. One exception is retention: it drops a day or deletes dead messages, which the lake
keeps. The other is an erasure: until it has been done on both sides, its rows differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from psycopg import Connection

from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.source.columns import ArchiveColumn
from relay.pipeline.source.database import Database, TooLongError, request_cancel
from relay.pipeline.source.partitions import DEAD, PartitionRange
from relay.pipeline.spark.tasks import named
from relay.pipeline.text import many
from relay.pipeline.verify import lake_rows
from relay.pipeline.verify.checksum import Sum, add_up, digest_expression, digests, total

FINDINGS = 20
"""How many differing rows are named at most."""
_LISTED = 20_000
"""About how many rows are compared one by one at a time if sums differ."""
_Digests = Counter[tuple[int, int, int]]
"""xid, seq and digest of rows."""
_Archived = Mapping[tuple[int, int], int]
"""The transaction that archived each row, by the row's xid and seq."""


@dataclass(frozen=True)
class Difference:
    """One row that is not the same on both sides: `missing` in the lake, `extra` there, or `different`.

    `archived_xid` is the transaction that archived it, as PostgreSQL has it; None if PostgreSQL has no such row.
    """

    kind: str
    xid: int
    seq: int
    archived_xid: int | None = field(default=None, compare=False)


class RangeComparison(NamedTuple):
    """The result for a range: the sums in PostgreSQL and in the lake, whether the range differs, and rows that differ."""

    ours: Sum
    theirs: Sum
    differs: bool
    findings: tuple[Difference, ...] = ()


def together(found: Iterable[RangeComparison]) -> RangeComparison:
    """The result for several ranges together."""
    every = list(found)
    findings = islice((finding for one in every for finding in one.findings), FINDINGS)
    sums = (total(one.ours for one in every), total(one.theirs for one in every))
    return RangeComparison(*sums, any(one.differs for one in every), tuple(findings))


def difference(found: RangeComparison) -> str:
    """One sentence on what differs."""
    rows = f"PostgreSQL has {many(found.ours.rows, 'row')} and the lake {found.theirs.rows}"
    kinds = {"missing": "missing in the lake", "extra": "extra in the lake", "different": "different in the lake"}
    named = [
        f"{words}: {', '.join(f'({one.xid}, {one.seq})' for one in found.findings if one.kind == kind)}"
        for kind, words in kinds.items()
        if any(one.kind == kind for one in found.findings)
    ]
    return "; ".join([rows, *named])


@dataclass(frozen=True)
class Comparison:
    """All that is needed to compare a range.

    Args:
        conninfo: complete, with its password.
        schema: where the queue's tables live.
        columns: the archive's columns, with what this lake remembers of them.
        place: root of the lake.
        seconds: how long one statement may hold its snapshot.
    """

    conninfo: str = field(repr=False)
    schema: str
    columns: tuple[ArchiveColumn, ...]
    place: LakeLocation
    seconds: float

    def compare(self, one: PartitionRange) -> RangeComparison:
        """Compare a range, on a connection of its own.

        Raises:
            UnreachableError: PostgreSQL or the object store does not answer.
            LakeError: a file of the lake cannot be read.
            PipelineError: PostgreSQL refused, or one transaction's index entries cannot be counted in time.
        """
        with Database(named(self.conninfo), schema=self.schema) as database:
            return _Sides(self, database).compare(one)


@dataclass(frozen=True)
class _Sides:
    """PostgreSQL and the lake."""

    job: Comparison
    database: Database

    def compare(self, one: PartitionRange, *, limited: bool = True) -> RangeComparison:
        try:
            ours, theirs = self._sums(one, limited=limited)
            findings = () if ours == theirs else tuple(self._findings(one, max(ours.rows, theirs.rows), limited=limited))
        except TooLongError:
            return self._smaller(one)
        # Dead messages that only the lake has were deleted by retention.
        return RangeComparison(ours, theirs, bool(findings) if one.partition.name == DEAD else ours != theirs, findings)

    def _sums(self, one: PartitionRange, *, limited: bool) -> tuple[Sum, Sum]:
        """The sums of both sides, computed at the same time; for foreign rows the server comes first: only it can say which these are."""
        # Connect before there are two threads, each of which would open a connection.
        with self.database.connection() as connection, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._rows, "sum_range", one, limited=limited)
            with _cancelled(connection):
                there = one.beyond(asked.result()[0][2]) if one.foreign else one
                theirs = add_up(self._batches(there), self.job.columns)
                [(rows, checksum, _)] = asked.result()
                return Sum(rows, int(checksum)), theirs

    def _smaller(self, one: PartitionRange) -> RangeComparison:
        """Compare the range in halves; a single row may take as long as it takes."""
        rows, *where = self._rows("halve_range", one)[0]
        if rows > 1:
            return together(map(self.compare, one.halves(*map(int, where))))
        return self.compare(one, limited=False)

    def _findings(self, one: PartitionRange, rows: int, *, limited: bool) -> list[Difference]:
        findings = list[Difference]()
        for part in one.divided(-(-rows // _LISTED)):
            ours, theirs, archived = self._digests(part, limited=limited)
            findings += [
                replace(found, archived_xid=archived.get((found.xid, found.seq)))
                for found in _differing(ours, theirs)
                if one.partition.name != DEAD or not _is_deleted(found, archived)
            ]
            if len(findings) >= FINDINGS:
                break
        return findings[:FINDINGS]

    def _digests(self, one: PartitionRange, *, limited: bool) -> tuple[_Digests, _Digests, _Archived]:
        """The rows in PostgreSQL, those in the lake, and which transaction archived each of PostgreSQL's."""
        found = self._rows("list_range", one, limited=limited)
        ours: _Digests = Counter((int(xid), seq, digest) for xid, seq, digest, _ in found)
        archived = {(int(xid), seq): int(archived_xid) for xid, seq, _, archived_xid in found}
        there = one.beyond(self._rows("sum_range", one, limited=limited)[0][2]) if one.foreign else one
        theirs: _Digests = Counter()
        for batch in self._batches(there):
            identities = (batch.column(name).to_pylist() for name in ("xid", "seq"))
            theirs.update(zip(*identities, digests(batch, self.job.columns), strict=True))
        return ours, theirs, archived

    def _batches(self, one: PartitionRange) -> Iterator[pa.RecordBatch]:
        return lake_rows.batches(self.job.place, one, [column.name for column in self.job.columns])

    @cached_property
    def _digest(self) -> bytes:
        return digest_expression(self.job.columns).as_string(None).replace("%", "%%").encode()

    def _rows(self, name: str, one: PartitionRange, *, limited: bool = True) -> list[tuple[Any, ...]]:
        """Run a statement on the range, with the digest's expression inserted; it is ended, with its snapshot, if it takes too long."""
        statement = self.database.statement(name).replace(b"@digest@", self._digest)
        with self.database.limited(self.job.seconds if limited else 0) as connection:
            return connection.execute(statement, one.values()).fetchall()


@contextmanager
def _cancelled(connection: Connection[Any]) -> Iterator[None]:
    """Cancel the connection's statement after an interrupt or an error of the lake: its answer is no longer needed."""
    try:
        yield
    except BaseException:
        request_cancel(connection)
        raise


def _is_deleted(found: Difference, kept: Collection[tuple[int, int]]) -> bool:
    """Whether retention has deleted a dead message; it has not if PostgreSQL still has the row, and the lake has it twice."""
    return found.kind == "extra" and (found.xid, found.seq) not in kept


def _differing(ours: _Digests, theirs: _Digests) -> list[Difference]:
    """Rows that only one side has, by identity; if each side has such a row of the same identity, the row is `different`."""
    here = {(xid, seq) for xid, seq, _ in ours - theirs}
    there = {(xid, seq) for xid, seq, _ in theirs - ours}
    kinds: Sequence[tuple[str, set[tuple[int, int]]]] = (("missing", here - there), ("extra", there - here), ("different", here & there))
    return [Difference(kind, *identity) for kind, identities in kinds for identity in sorted(identities)]
