"""Verification: each closed day and the dead messages are compared with the lake, row by row where they differ; the core drops by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from deltalake import DeltaTable

from relay.errors import LakeError
from relay.pipeline import cluster as clusters
from relay.pipeline import gained
from relay.pipeline.archive_table import TABLE, offset_of
from relay.pipeline.checksum import Sum, differing, total
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.partitions import DEAD, Digests, Partition, Sides
from relay.pipeline.words import many

FINDINGS = 20
"""Rows that are named."""
DIFFERS = 5
"""Exit code of a job that found a difference."""
_CHUNK = 512
"""Buckets of dead messages that are looked at together."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """One row that is not the same on both sides: `missing` in the lake, `extra` there, or `different`."""

    kind: str
    xid: int
    seq: int


@dataclass(frozen=True)
class Compared:
    """One partition; rows and checksum are PostgreSQL's.

    state: `verified`; `unchanged`, verified before and nothing added; `unexported`, equal but something was added that is not in the lake;
    or `differs`.
    """

    partition: str
    state: str
    rows: int
    checksum: str
    lake_rows: int
    lake_checksum: str
    exported_xid: int
    difference: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Verified:
    """What a verification found; `rows` were compared on both sides within `seconds`."""

    partitions: tuple[Compared, ...]
    rows: int
    seconds: float

    @property
    def differing(self) -> tuple[Compared, ...]:
        """Partitions that are not the same."""
        return tuple(one for one in self.partitions if one.state == "differs")

    @property
    def exit_code(self) -> int:
        """0, or 5 where a partition differs."""
        return DIFFERS if self.differing else 0


def run(*, lake: Lake, database: Database, say: Progress, again: bool = False, now: datetime | None = None) -> Verified:
    """Compare what is over and exported, and tell PostgreSQL; days that were verified and not added to since only `again`.

    Raises:
        LakeError: nothing was exported yet, or the lake is not readable here.
        UnreachableError: PostgreSQL or the object store does not answer.
        PipelineError: the lake is of another cluster or timeline; or PostgreSQL refused, as a standby
            does, or where the login lacks a permission.
    """
    begin = time.monotonic()
    verifier = _Verifier(lake, database, again=again)
    found = []
    for one in verifier.compare_all(now):
        say(_line(one))
        found.append(one)
    rows = sum(one.rows for one in found if one.state != "unchanged")
    return Verified(tuple(found), rows, time.monotonic() - begin)


class _Known(NamedTuple):
    """What PostgreSQL remembers of a day's verification."""

    verified: bool
    below: int
    rows: int
    checksum: int
    lake: str


class _Verifier:
    def __init__(self, lake: Lake, database: Database, *, again: bool) -> None:
        handle = lake.opened(TABLE)
        _check(handle, database)
        if not (below := offset_of(handle)):
            raise LakeError(f"Nothing was exported to the lake {lake.place.url} yet: run `relay pipeline export`.")
        self._lake_id = str(handle.metadata().id)
        self._below = below
        self._database = database
        self._again = again
        self._sides = Sides(database, lake, below=below, columns=gained.compared(handle, database.columns()))

    def compare_all(self, now: datetime | None) -> Iterator[Compared]:
        for name, day, *known in self._database.fetch("list_closed_days", {"schema": self._database.schema, "now": now}):
            partition = Partition.of_day(name, day)
            found = self._before(partition, _Known(*known)) or self._day(partition)
            if found is not None:
                yield found
        (oldest,) = self._database.one("read_oldest_dead", {"below": str(self._below)})
        yield self._dead(Partition.of_dead(oldest))

    def _before(self, partition: Partition, known: _Known) -> Compared | None:
        """What an earlier verification said, if it was against this lake and nothing was added since."""
        if self._again or not known.verified or known.lake != self._lake_id or self._newest(partition) >= known.below:
            return None
        same = Sum(known.rows, int(known.checksum))
        return Compared(partition.name, "unchanged", same.rows, str(same.checksum), same.rows, str(same.checksum), known.below)

    def _day(self, partition: Partition) -> Compared | None:
        """Compare a day; None if retention has dropped it meanwhile."""
        whole = self._newest(partition) < self._below
        ours, theirs = self._sides.sums(partition)
        if not (buckets := differing(ours, theirs)):
            return self._record(partition, "verified" if whole else "unexported", total(ours), total(theirs))
        findings = _findings(*self._sides.digests(partition, buckets[:FINDINGS]))
        (gone,) = self._database.one("read_gone", {"schema": self._database.schema, "partition": partition.name})
        return None if gone else self._record(partition, "differs", total(ours), total(theirs), findings[:FINDINGS])

    def _dead(self, partition: Partition) -> Compared:
        """Rows that only the lake has are those that retention has deleted."""
        ours, theirs = self._sides.sums(partition)
        buckets, findings = differing(ours, theirs), list[Finding]()
        for start in range(0, len(buckets), _CHUNK):
            found = _findings(*self._sides.digests(partition, buckets[start : start + _CHUNK]))
            findings += [one for one in found if one.kind != "extra"]
            if len(findings) >= FINDINGS:
                break
        return self._record(partition, "differs" if findings else "verified", total(ours), total(theirs), findings[:FINDINGS])

    def _newest(self, partition: Partition) -> int:
        """The last transaction that archived something there, 0 for none."""
        return next((xid for (xid,) in self._database.fetch("read_newest_archived", partition.values())), 0)

    def _record(self, partition: Partition, state: str, ours: Sum, theirs: Sum, findings: Sequence[Finding] = ()) -> Compared:
        difference = _difference(ours, theirs, findings) if state == "differs" else None
        values = {
            "partition": partition.name, "rows": ours.rows, "checksum": ours.checksum, "below": str(self._below),
            "verified": state == "verified", "difference": difference, "lake": self._lake_id,
        }  # fmt: skip
        self._database.fetch("record_comparison", values)
        return Compared(
            partition.name,
            state,
            ours.rows,
            str(ours.checksum),
            theirs.rows,
            str(theirs.checksum),
            self._below,
            difference,
            tuple(findings),
        )


def _check(handle: DeltaTable, database: Database) -> None:
    """See that the lake is of this cluster, timeline, database and schema: elsewhere the same transaction ids mean something else."""
    properties = {name: str(value) for name, value in handle.metadata().configuration.items()}
    clusters.check_form(properties)
    if found := clusters.differences(properties, clusters.read(database)):
        raise clusters.refusal(found)


def _findings(ours: Digests, theirs: Digests) -> list[Finding]:
    """Rows of one side alone, by identity; one whose identity is on both sides alone is different."""
    here = {(xid, seq) for xid, seq, _ in ours - theirs}
    there = {(xid, seq) for xid, seq, _ in theirs - ours}
    kinds = (("missing", here - there), ("extra", there - here), ("different", here & there))
    return [Finding(kind, *identity) for kind, identities in kinds for identity in sorted(identities)]


def _difference(ours: Sum, theirs: Sum, findings: Sequence[Finding]) -> str:
    """One sentence on what differs."""
    rows = f"PostgreSQL has {many(ours.rows, 'row')} and the lake {theirs.rows}"
    kinds = {"missing": "missing in the lake", "extra": "extra in the lake", "different": "different in the lake"}
    named = [
        f"{words}: {', '.join(f'({one.xid}, {one.seq})' for one in findings if one.kind == kind)}"
        for kind, words in kinds.items()
        if any(one.kind == kind for one in findings)
    ]
    return "; ".join([rows, *named])


def _line(one: Compared) -> str:
    if one.state == "differs":
        return f"{one.partition} DIFFERS and is kept: {one.difference}"
    name = "dead messages" if one.partition == DEAD else one.partition
    says = {
        "verified": "verified",
        "unchanged": "verified before",
        "unexported": "equal, but not exported whole: run the export, then this again",
    }
    return f"{name}: {many(one.rows, 'row')}, {says[one.state]}"
