"""The export: copies the archive into the lake, each row exactly once, in bounded batches of whole transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from deltalake import DeltaTable

from relay.errors import PipelineError
from relay.pipeline.after_commit import CommitGuard, in_lake
from relay.pipeline.export import beginning, distribute
from relay.pipeline.export import skipped_rows as left_out
from relay.pipeline.export.commits import Commits, Copied
from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.export.skipped_rows import SkippedRange, SkippedRows
from relay.pipeline.lake import epoch, witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import offset_of
from relay.pipeline.lake.target_table import Prepared, check_prepared, prepare, take_over
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source import replica
from relay.pipeline.source.cluster import Cluster
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import STEP, ExportBatch, batch_of, cuts, whole
from relay.pipeline.source.replica import Replica
from relay.pipeline.text import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
SIZES = Sizes()


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    `start` and `end` are transaction ids: everything archived below `end` is in the lake. `known` rows were read again but not written,
    because the lake already has them. `differing` of these rows are different in the lake, after a failover that lost commits. The
    `left_out` rows were left out because no lake can store them; `left_out_rows` names the first of them. `lag_seconds` is the age of the
    oldest row that is not in the lake. `registered` is whether PostgreSQL drops a day only after a verification. `damaged` are partitions
    whose files in the lake are lost or damaged. `unseen` is why the check of the lake afterwards failed. `noted` is whether PostgreSQL has
    recorded `end`. `failure` is why the export was cut short after a commit; all rows counted here are in the lake. A value that PostgreSQL
    did not return is None; after a signal no value is queried. `exit_code` is a signal's, else 5 if files are lost or damaged, else that of
    the failure or of the check.
    """

    rows: int
    files: int
    batches: int
    start: int
    end: int
    seconds: float
    lag_seconds: float | None
    known: int
    differing: int
    left_out: int
    left_out_rows: tuple[SkippedRows, ...]
    adopted: tuple[str, ...]
    registered: bool | None
    damaged: tuple[str, ...] = ()
    unseen: str | None = None
    noted: bool | None = None
    failure: str | None = None
    exit_code: int = 0


def run(
    *,
    lake: Lake,
    database: Database,
    spark: Callable[[], SparkSession],
    say: Progress,
    register: bool = False,
    adopt: bool = False,
    new_lake: bool = False,
    sizes: Sizes = SIZES,
) -> Exported:
    """Export all rows that were safe to export when the job began.

    Args:
        lake: where rows are copied to.
        database: the primary, with the replica that rows are read from, if there is one.
        spark: returns the session in which rows are copied, and starts it if needed; not called if nothing is new.
        say: called with a line about each batch.
        register: from now on PostgreSQL drops only verified days.
        adopt: let the lake follow this server, although the lake followed another server, or the lake or the server was restored.
        new_lake: begin a new lake instead of the present one; nothing in the new lake counts as verified.
        sizes: of commits, statements and files.

    Raises:
        ConflictError: another export was faster.
        UnreachableError: PostgreSQL or the object store does not answer.
        LakeError, PipelineError: the lake does not belong to this
            archive, or PostgreSQL, Spark or the store refused something.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or no number for SIGINT.

    If one of these errors is raised, nothing was committed. An error after a commit becomes part of the result instead, and so does a
    failed check of the lake.
    """
    to_register = register and beginning.is_to_be_registered(database)
    handle, known = epoch.both(lake, database)
    cluster = clusters.primary(database)
    adopted = beginning.adopted(lake, database, handle, known, cluster, adopt=adopt, new_lake=new_lake)
    if handle is None or adopted:
        spark()  # first: if Spark cannot start, no table is created, and a lake that is to be adopted still follows its old server
    prepared = prepare(lake, handle, known, database.columns(), cluster, adopted=adopted)
    standby = replica.read(database, cluster)
    if standby:
        say(str(standby))
    job = _Export(lake, database, spark, say, cluster, prepared, sizes, standby)
    beginning.tie_both(lake, database, cluster, prepared, new_lake=new_lake)
    job.carry_out(register=to_register)
    return job.result()


class _Told(NamedTuple):
    """What PostgreSQL knows when an export ends; None where it does not answer."""

    registered: bool | None = None
    lag: float | None = None
    noted: bool | None = None


@dataclass
class _Export:
    """One export in progress."""

    lake: Lake
    database: Database
    spark: Callable[[], SparkSession]
    say: Progress
    cluster: Cluster
    prepared: Prepared
    sizes: Sizes = SIZES
    standby: Replica | None = None
    began: float = field(default_factory=time.monotonic)
    rows: int = 0
    files: int = 0
    batches: int = 0
    known: int = 0
    differing: int = 0
    left_out: SkippedRange = field(default_factory=SkippedRange)
    start: int | None = None
    end: int = 0
    last: CopiedRange | None = None
    guard: CommitGuard = field(default_factory=CommitGuard)

    def carry_out(self, *, register: bool) -> None:
        """Do the whole export. After the first commit, an error or a signal cuts it short, but is not raised."""
        with self.guard.kept():
            self.work()
            if self.prepared.adopted:
                take_over(self.lake, self.cluster)
            if register:
                self.database.fetch("register_export")

    def work(self) -> None:
        """Export batch after batch, up to the transaction that was safe at the beginning."""
        while self._next():
            rate = self.rows / max(time.monotonic() - self.began, 0.001)
            self.say(f"{many(self.rows, 'row')} exported, {rate:,.0f} a second; {self._lag():,.0f} s behind")

    def result(self) -> Exported:
        """The summary, after a check of the lake."""
        look = witness.run_behind(self.guard, self.lake, self.database, self.say, self.spark)
        told = _Told()
        if not self.guard.stopped:
            with self.guard.kept():
                told = self._ask()
        failure = self.guard.failure("export", in_lake(self.rows, self.files, noted=told.noted), say=self.say)
        return Exported(
            rows=self.rows,
            files=self.files,
            batches=self.batches,
            start=self.start or 0,
            end=self.end,
            seconds=round(time.monotonic() - self.began, 3),
            lag_seconds=told.lag,
            known=self.known,
            differing=self.differing,
            left_out=self.left_out.rows,
            left_out_rows=self.left_out.named,
            adopted=self.prepared.adopted,
            registered=told.registered,
            damaged=look.damaged,
            unseen=look.failure,
            noted=told.noted,
            failure=failure,
            exit_code=witness.exit_code_of(self.guard, look, differs=bool(look.damaged)),
        )

    def _ask(self) -> _Told:
        [[registered]] = self.database.fetch("read_registered")
        return _Told(registered, self._lag(), epoch.read(self.database).offset >= self.end)

    def _next(self) -> bool:
        """Export one batch, from its plan to its commit, through one handle; return False if there is nothing to do.

        Before that, it reports the previous commit to PostgreSQL. An earlier job may have been killed between its commit and its report.
        """
        handle = self._handle()
        offset = offset_of(handle)
        begin = self.prepared.begin if self.batches == 0 else None
        start = offset if begin is None else begin
        self.start = start if self.start is None else self.start
        self.end = max(self.end, start)
        # The standby may not have the rows of a dump yet. They are copied only in the first batch, which reads from the primary.
        first = begin is not None or offset == 0
        source, safe = (self.database, self.cluster.safe) if first or not self.standby else (self.standby.database, self.standby.safe)
        if start >= safe:
            return False
        batch = self._plan(source, start, safe)
        foreign = self._foreign() if first else 0
        if not (batch.rows or foreign or begin is not None):
            return False
        self._carry(source, handle, batch, foreign)
        return True

    def _handle(self) -> DeltaTable:
        """The current table; raises an error if it has changed since it was prepared, or is not the table that PostgreSQL knows."""
        handle, known = epoch.both(self.lake, self.database)
        if handle is not None:
            check_prepared(handle, self.cluster, self.prepared)
        if (why := epoch.contradiction(known, handle)) or handle is None:
            raise epoch.distrust(self.database, epoch.refusal(why or "gone", known, self.lake.place.url, handle))
        epoch.settle(self.database, handle, known)
        return handle

    def _plan(self, source: Database, start: int, safe: int) -> ExportBatch:
        # Spark is already running once a batch was copied. Before the first copy it must not be started, because there may be nothing new.
        most = self.sizes.next_rows(self.last, distribute.slots(self.spark())) if self.last else self.sizes.first_rows
        rows, before_last, marks = source.one("plan_batch", {"start": str(start), "safe": str(safe), "most": most, "step": STEP})
        batch = batch_of(start, safe, (rows, before_last, marks), most)
        if batch.rows <= most:
            return batch
        [[rows]] = source.fetch("count_range", {"low": str(marks[0]), "high": str(marks[0] + 1)})
        return ExportBatch(batch.start, batch.end, rows, (marks[0],) * -(-rows // STEP))

    def _foreign(self) -> int:
        """Count rows whose transaction ids lie in the future: they came with another cluster's dump. The first batch exports them."""
        [[rows]] = self.database.fetch("count_range", {"low": str(self.cluster.next), "high": None})
        return int(rows)

    def _carry(self, source: Database, handle: DeltaTable, batch: ExportBatch, foreign: int) -> None:
        """Copy a batch and commit it with its offset, through the handle that the offset was read from."""
        if batch.end <= batch.start:
            raise PipelineError(f"The export would go back from transaction {batch.start} to {batch.end}: nothing was written.")
        chosen = cuts(batch, slots=distribute.slots(self.spark()), largest=self.sizes.cut_rows)
        chosen += whole(self.cluster.next, foreign, self.sizes.cut_rows)
        commits = Commits(self.lake, self.database, self.cluster, self.spark, self.prepared.columns, self.sizes.full)
        # A later transaction may have settled a row again. This batch then has the row, although the lake has it from another batch.
        position = batch.start if self.prepared.begin is None else self.prepared.begin
        written = commits.make(source, handle, Copied("read_cut", chosen, batch.end, position), then=partial(self._count, batch))
        if written.rows + written.known < batch.rows + foreign:
            self._name_left_out(batch, foreign)

    def _count(self, batch: ExportBatch, written: CopiedRange) -> None:
        """Add what was committed to the result."""
        self.guard.committed, self.last = True, written
        self.rows, self.files, self.batches = self.rows + written.rows, self.files + len(written.files), self.batches + 1
        self.known, self.differing, self.end = self.known + written.known, self.differing + written.differing, batch.end

    def _name_left_out(self, batch: ExportBatch, foreign: int) -> None:
        """Report which of the counted rows no lake can store. If there are no such rows, retention has deleted dead messages meanwhile."""
        ranges = [(batch.start, batch.end), *([(self.cluster.next, None)] if foreign else [])]
        self.left_out += (found := sum((left_out.find(self.database, self.prepared.columns, *one) for one in ranges), SkippedRange()))
        if found.rows:
            self.say(str(found))

    def _lag(self) -> float:
        [[seconds]] = self.database.fetch("read_lag", {"end": str(self.end)})
        return round(max(0.0, float(seconds)), 3)
