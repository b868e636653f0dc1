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
    """What an export did.

    `start` and `end` are transaction ids: everything archived below `end` is in the lake. `known` rows were read again but not written,
    because the lake has them; `differing` of them are not the same there (after a failover that lost commits). No lake can hold the
    `left_out` rows; the first of them are named. `lag_seconds` is the age of the oldest row that is not in the lake. `registered` is
    whether the core waits for verification before it drops a day. `damaged` are partitions of which the lake has lost files. `unseen` is
    why the look at the lake failed afterwards. `noted` is whether PostgreSQL has noted `end`. `failure` is why the export was cut short
    after a commit; all that is counted here is in the lake. A value that PostgreSQL does not give, or is not asked for after a signal, is
    None. `exit_code` is a signal's, else 5 if files are lost, else that of the failure or of the look.
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
    """Export everything that was safe to export when this began.

    Args:
        lake: where rows are copied to.
        database: the primary, with the replica that rows are read from, if there is one.
        spark: starts, or returns, the session in which rows are copied; not called if nothing is new.
        say: hears of each batch.
        register: let the core drop only verified days from now on.
        adopt: let the lake follow this server, although it followed another one until now, or the lake or the server was restored.
        new_lake: begin a new lake instead of the one until now; nothing in the new one counts as verified.
        sizes: of commits, statements and files.

    Raises:
        ConflictError: another export was faster.
        UnreachableError: PostgreSQL or the object store does not answer.
        LakeError, PipelineError: the lake does not belong to this archive, or something was refused.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or none for SIGINT.

    If one of these is raised, nothing was committed. After a commit such an error becomes part of the result instead, and so does a failed
    look at the lake.
    """
    to_register = register and beginning.is_to_be_registered(database)
    handle, known = epoch.both(lake, database)
    cluster = clusters.primary(database)
    adopted = beginning.adopted(lake, database, handle, known, cluster, adopt=adopt, new_lake=new_lake)
    if handle is None or adopted:
        spark()  # if Spark cannot start, no table is made, and a lake that is to be adopted still follows its old server
    prepared = prepare(lake, handle, known, database.columns(), cluster, adopted=adopted)
    standby = replica.read(database, cluster)
    if standby:
        say(str(standby))
    job = _Export(lake, database, spark, say, cluster, prepared, sizes, standby)
    beginning.tie_both(lake, database, cluster, prepared, new_lake=new_lake)
    job.carry_out(register=to_register)
    return job.result()


class _Told(NamedTuple):
    """What PostgreSQL knows when an export ends; None if it does not answer."""

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
        """Do the whole export; after a commit, an error or a signal only cuts it short."""
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
        """The summary, after a look at the lake."""
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
        """Export one batch, from its plan to its commit, through one handle; False if there is nothing to do.

        First it reports the previous commit to PostgreSQL, even if an earlier job made it and was killed before it could report it.
        """
        handle = self._handle()
        offset = offset_of(handle)
        begin = self.prepared.begin if self.batches == 0 else None
        start = offset if begin is None else begin
        self.start = start if self.start is None else self.start
        self.end = max(self.end, start)
        # The standby may not have the rows of a dump yet; these are taken only at the beginning, which reads from the primary.
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
        """The table as it is now; an error if it is not as it was prepared, or not the one that PostgreSQL knows."""
        handle, known = epoch.both(self.lake, self.database)
        if handle is not None:
            check_prepared(handle, self.cluster, self.prepared)
        if (why := epoch.contradiction(known, handle)) or handle is None:
            raise epoch.distrust(self.database, epoch.refusal(why or "gone", known, self.lake.place.url, handle))
        epoch.settle(self.database, handle, known)
        return handle

    def _plan(self, source: Database, start: int, safe: int) -> ExportBatch:
        # Only what was copied has started Spark: if nothing is new, it need not start.
        most = self.sizes.next_rows(self.last, distribute.slots(self.spark())) if self.last else self.sizes.first_rows
        rows, before_last, marks = source.one("plan_batch", {"start": str(start), "safe": str(safe), "most": most, "step": STEP})
        batch = batch_of(start, safe, (rows, before_last, marks), most)
        if batch.rows <= most:
            return batch
        [[rows]] = source.fetch("count_range", {"low": str(marks[0]), "high": str(marks[0] + 1)})
        return ExportBatch(batch.start, batch.end, rows, (marks[0],) * -(-rows // STEP))

    def _foreign(self) -> int:
        """Count rows with ids of the future. They came with another cluster's dump, so the lake takes all of them when it begins."""
        [[rows]] = self.database.fetch("count_range", {"low": str(self.cluster.next), "high": None})
        return int(rows)

    def _carry(self, source: Database, handle: DeltaTable, batch: ExportBatch, foreign: int) -> None:
        """Copy a batch and commit it with its offset, through the handle that the offset was read from."""
        if batch.end <= batch.start:
            raise PipelineError(f"The export would go back from transaction {batch.start} to {batch.end}: nothing was written.")
        chosen = cuts(batch, slots=distribute.slots(self.spark()), largest=self.sizes.cut_rows)
        chosen += whole(self.cluster.next, foreign, self.sizes.cut_rows)
        commits = Commits(self.lake, self.database, self.cluster, self.spark, self.prepared.columns, self.sizes.full)
        # A later transaction may have settled a row again: then it is in another batch than the one from which the lake has it.
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
        """Say which of the counted rows no lake can hold; if there are none, retention has deleted dead messages meanwhile."""
        ranges = [(batch.start, batch.end), *([(self.cluster.next, None)] if foreign else [])]
        self.left_out += (found := sum((left_out.find(self.database, self.prepared.columns, *one) for one in ranges), SkippedRange()))
        if found.rows:
            self.say(str(found))

    def _lag(self) -> float:
        [[seconds]] = self.database.fetch("read_lag", {"end": str(self.end)})
        return round(max(0.0, float(seconds)), 3)
