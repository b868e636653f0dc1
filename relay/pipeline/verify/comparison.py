"""Compares one range of the archive with the lake: the sums of both sides and, if they differ, the rows. Runs in Spark's tasks too.

Each statement has its own snapshot. All statements still see the same rows: rows that a transaction below the export's bound has archived
do not change, and no such row is added. One exception is retention, which drops a day or deletes dead messages, while the lake keeps them.
The other exception is an erasure: until it is done on both sides, its rows differ.
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
"""The most differing rows that are named."""
_LISTED = 20_000
"""About how many rows are compared one by one at a time if sums differ."""
_Digests = Counter[tuple[int, int, int]]
"""xid, seq and digest of rows."""
_Archived = Mapping[tuple[int, int], int]
"""The transaction that archived each row, by the row's xid and seq."""


@dataclass(frozen=True)
class Difference:
    """One row in which the sides differ: `missing` in the lake, `extra` in the lake, or `different`.

    `archived_xid` is the transaction that archived the row in PostgreSQL; None if PostgreSQL has no such row.
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
    """Combine the results of several ranges."""
    every = list(found)
    findings = islice((finding for one in every for finding in one.findings), FINDINGS)
    sums = (total(one.ours for one in every), total(one.theirs for one in every))
    return RangeComparison(*sums, any(one.differs for one in every), tuple(findings))


def difference(found: RangeComparison) -> str:
    """One sentence on the difference."""
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
    """Everything that is needed to compare a range.

    Args:
        conninfo: a complete connection string, with the password.
        schema: the schema of the queue's tables.
        columns: the archive's columns, with the values that this lake records for older rows.
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
            PipelineError: PostgreSQL refused a statement, or could not count one transaction's index entries in time.
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
        # Dead messages that only the lake has do not count as a difference: retention has deleted them in PostgreSQL.
        return RangeComparison(ours, theirs, bool(findings) if one.partition.name == DEAD else ours != theirs, findings)

    def _sums(self, one: PartitionRange, *, limited: bool) -> tuple[Sum, Sum]:
        """The sums of both sides, computed in parallel.

        For foreign rows PostgreSQL comes first, because only PostgreSQL knows which rows these are.
        """
        # Connect now: later there are two threads, and each of them would open a connection.
        with self.database.connection() as connection, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._rows, "sum_range", one, limited=limited)
            with _cancelled(connection):
                there = one.beyond(asked.result()[0][2]) if one.foreign else one
                theirs = add_up(self._batches(there), self.job.columns)
                [(rows, checksum, _)] = asked.result()
                return Sum(rows, int(checksum)), theirs

    def _smaller(self, one: PartitionRange) -> RangeComparison:
        """Compare the range in halves; a range of a single row is compared without a time limit."""
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
        """The rows in PostgreSQL, the rows in the lake, and the transaction that archived each row in PostgreSQL."""
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
        """Run a statement on the range, with the digest's expression inserted; with `limited`, it is cancelled if it takes too long."""
        statement = self.database.statement(name).replace(b"@digest@", self._digest)
        with self.database.limited(self.job.seconds if limited else 0) as connection:
            return connection.execute(statement, one.values()).fetchall()


@contextmanager
def _cancelled(connection: Connection[Any]) -> Iterator[None]:
    """Cancel the connection's statement after an interrupt or an error of the lake, because its result is no longer needed."""
    try:
        yield
    except BaseException:
        request_cancel(connection)
        raise


def _is_deleted(found: Difference, kept: Collection[tuple[int, int]]) -> bool:
    """Whether retention has deleted a dead message. If PostgreSQL still has the row, the lake has the row twice instead."""
    return found.kind == "extra" and (found.xid, found.seq) not in kept


def _differing(ours: _Digests, theirs: _Digests) -> list[Difference]:
    """Rows that only one side has, by identity. If both sides have a row of the same identity with different digests, it is `different`."""
    here = {(xid, seq) for xid, seq, _ in ours - theirs}
    there = {(xid, seq) for xid, seq, _ in theirs - ours}
    kinds: Sequence[tuple[str, set[tuple[int, int]]]] = (("missing", here - there), ("extra", there - here), ("different", here & there))
    return [Difference(kind, *identity) for kind, identities in kinds for identity in sorted(identities)]
