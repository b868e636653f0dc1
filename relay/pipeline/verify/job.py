"""Verification: compares closed days and dead messages with the lake, row by row if they differ. Retention depends on the result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from relay.errors import LakeError
from relay.pipeline.lake import added_columns, epoch, witness
from relay.pipeline.lake.day_ranges import ROWS, ComparisonPlan
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.epoch import offset_of
from relay.pipeline.lake.target_table import linked
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import DEAD, ArchivePartition, PartitionRange
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many
from relay.pipeline.verify.checksum import FORM, NO_FORM, Sum, total
from relay.pipeline.verify.comparison import FINDINGS, Comparison, Difference, RangeComparison, difference, together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRONG = ("differs", "damaged")
_AT_ONCE = 64
"""How many ranges are planned and compared before their results are reported."""
_ASIDE = 100
"""The most differing dead messages that are put aside; each run compares all of them again."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """One partition; rows and checksum are PostgreSQL's. For dead messages they cover only those that this run has compared.

    state: `verified`; `unchanged`: verified before, and no rows were added since; `unexported`: equal, but not all rows are exported;
    `differs`; or `damaged`: not compared, because files in the lake are lost or damaged.
    """

    partition: str
    state: str
    rows: int
    checksum: str
    lake_rows: int
    lake_checksum: str
    exported_xid: int
    difference: str | None = None
    findings: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Verified:
    """What a verification found; `rows` were compared on both sides within `seconds`."""

    partitions: tuple[Compared, ...]
    rows: int
    seconds: float

    @property
    def differing(self) -> tuple[Compared, ...]:
        """Partitions that differ or are damaged."""
        return tuple(one for one in self.partitions if one.state in _WRONG)

    @property
    def exit_code(self) -> int:
        """0, or 5 if a partition differs or is damaged."""
        return witness.DIFFERS if self.differing else 0


def run(
    *,
    lake: Lake,
    database: Database,
    say: Progress,
    spark: Callable[[], SparkSession] | None = None,
    again: bool = False,
    now: datetime | None = None,
    rows: int = ROWS,
) -> Verified:
    """Compare past days and dead messages, and record the results. A verified day without new rows is compared only with `again`.

    Args:
        lake: the lake that is compared.
        database: the server that is compared, and that records the results.
        say: called with a line about each partition.
        spark: returns the session whose tasks compare ranges if there are many, and starts it if needed. If None, this process compares.
        again: compare also partitions that were verified before.
        now: replaces PostgreSQL's time.
        rows: about how many rows are compared at once.

    Raises:
        LakeError: nothing was exported yet, or the lake is not readable here.
        UnreachableError: PostgreSQL or the object store does not answer.
        PipelineError: the lake belongs to another cluster or timeline; or PostgreSQL refused, because it is a standby or the login lacks a
            permission.
    """
    begin = time.monotonic()
    damage = witness.run(lake, database, lambda _line: None, spark).damage
    verifier = _Verifier(lake, database, say, spark, damage, again=again, rows=rows)
    found = []
    try:
        for one in verifier.compare_all(now):
            say(_line(one))
            found.append(one)
    except LakeError as error:
        raise epoch.distrust(database, error) from error
    compared = sum(one.rows for one in found if one.state != "unchanged")
    return Verified(tuple(found), compared, time.monotonic() - begin)


class _Known(NamedTuple):
    """PostgreSQL's record of a partition's last verification; all fields but `verified` are null if there was no verification."""

    verified: bool = False
    below: int = 0
    rows: int = 0
    checksum: int = 0
    lake: str = ""
    form: int = FORM
    aside: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    @property
    def places(self) -> list[tuple[int, int]]:
        """Archiving transaction and `seq` of each dead message that was put aside, below `below`; all later ones are compared again."""
        found = ((one["archived_xid"], int(place.partition("/")[2])) for place, one in self.aside.items())
        return sorted(place for place in found if place[0] < self.below)


class _Task(NamedTuple):
    """A partition and its ranges that are to be compared; no range if `known` is still valid, or if files are lost."""

    partition: ArchivePartition
    ranges: Sequence[PartitionRange]
    known: _Known


class _Verifier:
    def __init__(
        self,
        lake: Lake,
        database: Database,
        say: Progress,
        spark: Callable[[], SparkSession] | None,
        damage: Mapping[str, str],
        *,
        again: bool,
        rows: int,
    ) -> None:
        handle, _ = linked(lake, database)
        if not (below := offset_of(handle)):
            raise LakeError(f"Nothing was exported to the lake {lake.place.url} yet: run `relay pipeline export`.")
        self._lake_id = str(handle.metadata().id)
        self._form = FORM if clusters.refuses_older(handle.metadata().configuration) else NO_FORM
        self._below = below
        self._damage = damage
        self._database = database
        self._again = again
        self._plan = ComparisonPlan(database, files(handle), below, rows)
        columns = tuple(added_columns.compared(handle, database.columns()))
        self._comparison = Comparison(
            database.complete_conninfo("verify"), database.schema, columns, lake.place, seconds=database.snapshot_seconds
        )
        self._carrier = Carrier(spark, say, database.connections)

    def compare_all(self, now: datetime | None) -> Iterator[Compared]:
        yield from (self._damaged(name, words) for name, words in self._damage.items())
        for tasks in _grouped(self._tasks(now)):
            found = iter(self._carrier.each(self._comparison.compare, [one for task in tasks for one in task.ranges]))
            for task in tasks:
                every = [next(found) for _ in task.ranges]
                if (compared := self._judged(task, every)) is not None:
                    yield compared

    def _tasks(self, now: datetime | None) -> Iterator[_Task]:
        for name, day, *known in self._database.fetch("list_closed_days", {"schema": self._database.schema, "now": now}):
            if name in self._damage:
                continue
            partition, before = ArchivePartition.of_day(name, day), _Known(*known)
            holds = self._holds(before) and self._newest(partition) < before.below
            yield _Task(partition, [] if holds else self._plan.ranges(partition), before)
        yield self._dead()

    def _damaged(self, name: str, words: str) -> Compared:
        """The result for a damaged partition, which is not compared. Its earlier result becomes valid again when the lake is repaired."""
        return Compared(name, "damaged", 0, "0", 0, "0", self._below, words)

    def _dead(self) -> _Task:
        """Plan the dead messages, which do not change: verified messages are not read again, messages that were put aside are."""
        rows = self._database.fetch("read_compared", {"partition": DEAD})
        known = next((_Known(*row) for row in rows), _Known())
        known = known if self._holds(known) and known.below <= self._below else _Known()
        values = {"mark": str(known.below), "below": str(self._below), "aside": [str(xid) for xid, _ in known.places]}
        (oldest,) = self._database.one("read_oldest_dead", values)
        partition = ArchivePartition.of_dead(oldest)
        aside = [self._plan.row(partition, *place) for place in known.places]
        lost = any(partition.touches(witness.day_of(name)) for name in self._damage)
        return _Task(partition, [] if lost else [*aside, *self._plan.ranges(partition, known.below)], known)

    def _holds(self, known: _Known) -> bool:
        """Whether an earlier verification is still valid: it must be of this lake, and by the same form of checksum."""
        return not self._again and known.verified and known.lake == self._lake_id and known.form == FORM

    def _judged(self, task: _Task, every: Sequence[RangeComparison]) -> Compared | None:
        if task.partition.name == DEAD:
            lost = [name for name in self._damage if task.partition.touches(witness.day_of(name))]
            return self._damaged(DEAD, f"the lake has lost files of {lost[0]}") if lost else self._of_dead(task, every)
        return self._of_day(task, together(every)) if task.ranges else self._unchanged(task)

    def _unchanged(self, task: _Task) -> Compared:
        rows, checksum = task.known.rows, str(int(task.known.checksum))
        return Compared(task.partition.name, "unchanged", rows, checksum, rows, checksum, task.known.below)

    def _of_day(self, task: _Task, found: RangeComparison) -> Compared | None:
        """The result for a day; None if retention has dropped the day meanwhile."""
        name = task.partition.name
        if found.differs and self._database.one("read_gone", {"schema": self._database.schema, "partition": name})[0]:
            return None
        state = "differs" if found.differs else "verified" if self._newest(task.partition) < self._below else "unexported"
        self._record(name, found, found.ours, self._below, verified=state == "verified")
        return self._compared(name, state, found)

    def _of_dead(self, task: _Task, every: Sequence[RangeComparison]) -> Compared:
        """The result for dead messages: messages that differ are put aside, and the others are verified."""
        found = together(every)
        pairs = list(zip(task.ranges, every, strict=True))
        aside, border = _put_aside(pairs, self._below)
        new = total(what.ours for one, what in pairs if task.known.below <= one.cut.low < border and not one.foreign)
        known = Sum(task.known.rows, int(task.known.checksum))
        self._record(DEAD, found, total([known, new]), border, verified=border > 0, aside=aside)
        if found.ours.rows == found.theirs.rows == 0 < task.known.below:
            return self._unchanged(task)
        return self._compared(DEAD, "differs" if found.differs else "verified", found)

    def _newest(self, partition: ArchivePartition) -> int:
        """The last transaction that archived something in the partition; 0 if there is none."""
        return next((xid for (xid,) in self._database.fetch("read_newest_archived", partition.values())), 0)

    def _record(
        self, name: str, found: RangeComparison, rows: Sum, below: int, *, verified: bool, aside: Mapping[str, object] | None = None
    ) -> None:
        values = {
            "partition": name, "rows": rows.rows, "checksum": rows.checksum, "below": str(below), "verified": verified,
            "difference": difference(found) if found.differs else None, "lake": self._lake_id, "form": self._form,
            "aside": json.dumps(aside or {}),
        }  # fmt: skip
        self._database.fetch("record_comparison", values)

    def _compared(self, name: str, state: str, found: RangeComparison) -> Compared:
        sums = (found.ours.rows, str(found.ours.checksum), found.theirs.rows, str(found.theirs.checksum))
        words = difference(found) if found.differs else None
        return Compared(name, state, *sums, self._below, words, found.findings)


def _put_aside(pairs: Iterable[tuple[PartitionRange, RangeComparison]], below: int) -> tuple[dict[str, object], int]:
    """Differing dead messages by place, with the kind of difference; and the transaction below which all other dead messages are verified.

    The transaction is the start of the first range that has `FINDINGS` differing rows, or that would put too many messages aside. Without
    such a range it is `below`.
    """
    aside: dict[str, object] = {}
    for one, what in sorted(pairs, key=lambda pair: pair[0].cut.low):
        if len(what.findings) >= FINDINGS or len(aside) + len(what.findings) > _ASIDE:
            return aside, one.cut.low
        aside |= {f"{row.xid}/{row.seq}": {"code": row.kind, "archived_xid": row.archived_xid} for row in what.findings}
    return aside, below


def _grouped(tasks: Iterable[_Task]) -> Iterator[list[_Task]]:
    """Groups of partitions that together have enough ranges."""
    group = list[_Task]()
    for task in tasks:
        group.append(task)
        if sum(len(one.ranges) for one in group) >= _AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _line(one: Compared) -> str:
    if one.state == "differs":
        return f"{one.partition} DIFFERS and is kept: {one.difference}"
    if one.state == "damaged":
        return f"{one.partition} IS DAMAGED in the lake: {one.difference}"
    name = "dead messages" if one.partition == DEAD else one.partition
    says = {
        "verified": "verified",
        "unchanged": "verified before",
        "unexported": "equal, but not exported whole: run the export, then this again",
    }
    return f"{name}: {many(one.rows, 'row')}, {says[one.state]}"
