"""Exports days again after the export has passed them.

The job adds the rows that PostgreSQL has and the lake lacks. It reports other differences, but does not repair them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from relay.errors import LakeError, PipelineError
from relay.pipeline.after_commit import CommitGuard, in_lake
from relay.pipeline.export.commits import Commits, Copied
from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.lake import added_columns, damage, epoch, witness
from relay.pipeline.lake.day_ranges import ROWS, ComparisonPlan
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.epoch import offset_of
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.target_table import Prepared, check_prepared, linked, prepare, tie
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import ArchivePartition, PartitionRange
from relay.pipeline.source.ranges import BEYOND, RowRange
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many
from relay.pipeline.verify.comparison import Comparison, Difference, RangeComparison, difference, together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Day:
    """A day of UTC: rows that were added to the lake, rows that PostgreSQL has, and other differences; `findings` has up to 20 of these."""

    day: date
    added: int
    rows: int
    difference: str | None = None
    findings: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Added:
    """The result for all days: `added` counts the rows that the lake lacked, `unseen` is why the check of the lake afterwards failed.

    `failure` is why the job was cut short after a commit. Rows of `unfinished` days may have been added, but these days were not compared
    afterwards. `exit_code` is a signal's, else 5 if a day differs, else that of the failure or of the check.
    """

    days: tuple[Day, ...]
    added: int
    seconds: float
    unseen: str | None = None
    unfinished: tuple[date, ...] = ()
    failure: str | None = None
    exit_code: int = 0


def run(
    *, lake: Lake, database: Database, spark: Callable[[], SparkSession], say: Progress, days: Iterable[date], rows: int = ROWS
) -> Added:
    """Compare all rows of each of these days with the lake, and add the rows that the lake lacks; a second run adds nothing.

    All rows of lost or damaged files count as missing. Rows that were archived since the last export are left for the next one.

    Args:
        lake: where the rows are added.
        database: the primary.
        spark: returns the session in which rows are copied, and starts it if needed; not called if nothing is missing and little is
            compared.
        say: called with a line about each day.
        days: the days, in UTC.
        rows: about how many rows are compared at once.

    Raises:
        ConflictError: another export was faster.
        LakeError: nothing was exported yet, or the lake is not readable here.
        UnreachableError, PipelineError: as for `relay.pipeline.export.job.run`.

    An error after a commit becomes part of the result instead, as in an export.
    """
    begin = time.monotonic()
    cluster = clusters.primary(database)
    handle, known = linked(lake, database)
    if not offset_of(handle):
        raise LakeError(f"Nothing was exported to the lake {lake.place.url} yet: run `relay pipeline export`.")
    prepared = prepare(lake, handle, known, database.columns(), cluster)
    tie(lake, database, cluster, prepared)
    job = _Again(Commits(lake, database, cluster, spark, prepared.columns), prepared, say, rows)
    chosen, found = sorted(set(days)), list[Day]()
    with job.guard.kept():
        job.forget_damaged(chosen)
        for day in chosen:
            found.append(job.add(day))
            say(_line(found[-1]))
    look = witness.run_behind(job.guard, lake, database, say, spark)
    return Added(
        days=tuple(found),
        added=sum(one.rows for one in job.written),
        seconds=round(time.monotonic() - begin, 3),
        unseen=look.failure,
        unfinished=tuple(chosen[len(found) :]),
        failure=job.failure(),
        exit_code=witness.exit_code_of(job.guard, look, differs=any(one.difference for one in found)),
    )


@dataclass(frozen=True)
class _Again:
    commits: Commits
    prepared: Prepared
    say: Progress
    rows: int
    guard: CommitGuard = field(default_factory=CommitGuard)
    written: list[CopiedRange] = field(default_factory=list)
    removed: list[LoggedFile] = field(default_factory=list)

    def failure(self) -> str | None:
        """Why the job was cut short after a commit, in one sentence; None if the job was not cut short."""
        if self.guard.error is None:
            return None
        noted = None
        if not self.guard.stopped:
            with suppress(PipelineError):
                noted = not epoch.read(self.commits.database).pending
        rows, files = sum(one.rows for one in self.written), sum(len(one.files) for one in self.written)
        return self.guard.failure("export", in_lake(rows, files, noted=noted, removed=len(self.removed)), say=self.say)

    def add(self, day: date) -> Day:
        """Add the missing rows of a day. If PostgreSQL has dropped the day, compare only dead messages, which it may still have."""
        daily, dropped = ArchivePartition.of_day(witness.partition_of(day), day), self._is_dropped(day)
        added, found = zip(*map(self._complete, [daily.dead] if dropped else [daily, daily.dead]), strict=True)
        both = together(found)
        return Day(day, sum(added), both.ours.rows, difference(both) if both.differs else None, both.findings)

    def forget_damaged(self, days: Sequence[date]) -> None:
        """Remove lost and damaged files of these days from the table, so that `add` finds their rows missing and adds them.

        Until the rows are added, the log names fewer rows than PostgreSQL has recorded, so PostgreSQL drops nothing.

        Raises:
            LakeError: PostgreSQL has dropped the day of a lost or damaged file, or a file cannot be reached. In both cases nothing is
                removed.
        """
        handle = self._handle()
        check = FooterCheck(self.commits.lake.place, schema_of(handle))
        damaged = damage.of_files(check, [file for file in files(handle) if file.day in days], self._carrier())
        for file, words in damaged.items():
            if file.day and self._is_dropped(file.day):
                raise LakeError(f"PostgreSQL has dropped the day {file.day}, which a copy of the lake alone may have: {words}.")
            self.say(f"{file.day}: {words}: its rows are taken from PostgreSQL again")
        if damaged:
            self.commits.forget(handle, list(damaged), then=partial(self._forgotten, damaged))

    def _is_dropped(self, day: date) -> bool:
        database = self.commits.database
        return bool(database.one("read_gone", {"schema": database.schema, "partition": witness.partition_of(day)})[0])

    def _complete(self, partition: ArchivePartition) -> tuple[int, RangeComparison]:
        """Add a partition's missing rows; return their number, and the comparison of the whole partition afterwards."""
        handle = self._handle()
        ranges = list(ComparisonPlan(self.commits.database, files(handle), offset_of(handle), self.rows).ranges(partition))
        found = self._compared(handle, ranges)
        short = [one for one, what in zip(ranges, found, strict=True) if what.differs]
        if not short:
            return 0, together(found)
        written = self._copied(
            handle, partition, [RowRange(self.commits.cluster.next, BEYOND) if one.foreign else one.cut for one in short]
        )
        new = tuple(file.path for file in written.files)
        # The other ranges are equal in PostgreSQL and in the lake, and need no second comparison.
        later = iter(self._compared(self._handle(), [replace(one, files=(*one.files, *new)) for one in short]))
        return written.rows, together(next(later) if what.differs else what for what in found)

    def _count(self, written: CopiedRange) -> None:
        self.written.append(written)
        self._note()

    def _forgotten(self, files: Iterable[LoggedFile]) -> None:
        self.removed.extend(files)
        self._note()

    def _note(self) -> None:
        self.guard.committed = True

    def _handle(self) -> DeltaTable:
        """The current table of this server's lake; raises an error if the table has changed since it was prepared."""
        handle, _ = linked(self.commits.lake, self.commits.database)
        check_prepared(handle, self.commits.cluster, self.prepared)
        return handle

    def _compared(self, handle: DeltaTable, ranges: Sequence[PartitionRange]) -> list[RangeComparison]:
        database = self.commits.database
        columns = tuple(added_columns.compared(handle, self.prepared.columns))
        conninfo = database.complete_conninfo("export")
        comparison = Comparison(conninfo, database.schema, columns, self.commits.lake.place, seconds=database.snapshot_seconds)
        return list(self._carrier().each(comparison.compare, ranges))

    def _carrier(self) -> Carrier:
        return Carrier(self.commits.spark, self.say, self.commits.database.connections)

    def _copied(self, handle: DeltaTable, partition: ArchivePartition, cuts: Sequence[RowRange]) -> CopiedRange:
        """Copy a partition's rows that the lake lacks, after a search of every file of the lake that may have some of the rows."""
        results = ", ".join(f"'{result}'" for result in partition.results)
        values = {"results": results, "since": str(partition.since), "last": str(partition.last)}
        database = self.commits.database
        [(oldest,)] = database.fetch("read_oldest_xid", partition.values()) or [(0,)]
        copied = Copied("read_range", cuts, offset_of(handle), int(oldest), values)
        return self.commits.make(database, handle, copied, then=self._count, always=False)


def _line(one: Day) -> str:
    if one.difference:
        return f"{one.day} DIFFERS: {one.difference}"
    return f"{one.day}: {many(one.added, 'row')} added; the lake has all {many(one.rows, 'row')} of PostgreSQL"
