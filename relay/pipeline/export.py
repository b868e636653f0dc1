"""The export: the archive into the lake, each row exactly once, in bounded batches of whole transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from relay.errors import PipelineError
from relay.pipeline import cluster as clusters
from relay.pipeline import left_out, progress, spread
from relay.pipeline.archive import fault, select_list
from relay.pipeline.archive_table import OFFSET, TABLE, Prepared, announce, check_prepared, check_same, offset_of, prepare, take_over
from relay.pipeline.cluster import Cluster
from relay.pipeline.cuts import STEP, Batch, Cut, batch_of, cuts, whole
from relay.pipeline.database import Database
from relay.pipeline.known import known_from
from relay.pipeline.lake import Lake, schema_of
from relay.pipeline.left_out import Found, LeftOut
from relay.pipeline.source import Reading
from relay.pipeline.words import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
BATCH_ROWS = 2_000_000
FILE_ROWS = 500_000
MARGIN = 1_000_000


@dataclass(frozen=True)
class Exported:
    """What an export did.

    `start` and `end` are transaction ids: everything archived below `end` is in the lake. `known` rows were read again and left out: the
    lake has them; `differing` of those are not the same row there (after a failover that lost commits). No lake can hold the `left_out`
    rows; the first of them are named. `lag_seconds` is the age of the oldest row that is not in the lake, `registered` whether the core
    waits for verification before it drops a day.
    """

    rows: int
    files: int
    batches: int
    start: int
    end: int
    seconds: float
    lag_seconds: float
    known: int
    differing: int
    left_out: int
    left_out_rows: tuple[LeftOut, ...]
    adopted: tuple[str, ...]
    registered: bool


def run(
    *,
    lake: Lake,
    database: Database,
    spark: Callable[[], SparkSession],
    say: Progress,
    register: bool = False,
    adopt: bool = False,
    margin: int = MARGIN,
    batch_rows: int = BATCH_ROWS,
    file_rows: int = FILE_ROWS,
) -> Exported:
    """Export everything that was safe to export when this began.

    Args:
        lake: where to.
        database: where from; a standby will do.
        spark: starts, or returns, the session in which rows are copied; not called where nothing is new.
        say: hears of each batch.
        register: let the core drop only verified days from now on.
        adopt: follow another cluster, timeline, database or schema than until now.
        margin: transactions that are read again after a change of timeline; after another change it is everything.
        batch_rows: about how many rows one commit adds; a larger transaction is one commit all the same.
        file_rows: about how many rows one file holds.

    Raises:
        ConflictError: another export was faster.
        UnreachableError: PostgreSQL or the object store does not answer.
        LakeError, PipelineError: the lake is none of this archive's, or something was refused; committed batches stay.
    """
    to_register = register and _is_to_be_registered(database)
    if (handle := lake.open(TABLE)) is None:
        spark()  # the first export makes the table, and must not if it could not fill it
    position = 0 if handle is None else offset_of(handle)
    cluster = clusters.read(database)
    prepared = prepare(lake, database.columns(), cluster, position=position, adopt=adopt, margin=margin)
    job = _Export(lake, database, spark, say, cluster, prepared, max(STEP, batch_rows // STEP * STEP), file_rows)
    if prepared.adopted:
        spark()  # an adoption that cannot begin leaves the lake to whom it followed
        announce(lake, cluster)
    job.work()
    if prepared.adopted:
        take_over(lake, cluster)
    if to_register:
        database.fetch("register_export")
    return job.result()


def _is_to_be_registered(database: Database) -> bool:
    """Asked before anything is done, so that a missing permission costs nothing."""
    registered, allowed = database.one("may_register", {"schema": database.schema})
    if not (registered or allowed):
        raise PipelineError(
            "The pipeline's login may not register an export: let an operator run `relay config set export_registered true`."
        )
    return not registered


@dataclass
class _Export:
    """One export on its way."""

    lake: Lake
    database: Database
    spark: Callable[[], SparkSession]
    say: Progress
    cluster: Cluster
    prepared: Prepared
    batch_rows: int
    file_rows: int
    began: float = field(default_factory=time.monotonic)
    rows: int = 0
    files: int = 0
    batches: int = 0
    known: int = 0
    differing: int = 0
    left_out: Found = field(default_factory=Found)
    start: int | None = None
    end: int = 0

    def work(self) -> None:
        """Batch after batch, up to what was safe in the beginning."""
        while self._next():
            progress.note(self.database, self.end)
            rate = self.rows / max(time.monotonic() - self.began, 0.001)
            self.say(f"{many(self.rows, 'row')} exported, {rate:,.0f} a second; {self._lag():,.0f} s behind")
        # Said again where nothing was new: the last export may have ended between its commit and this.
        progress.note(self.database, self.end)

    def result(self) -> Exported:
        """The summary."""
        [[registered]] = self.database.fetch("read_registered")
        return Exported(
            rows=self.rows,
            files=self.files,
            batches=self.batches,
            start=self.start or 0,
            end=self.end,
            seconds=round(time.monotonic() - self.began, 3),
            lag_seconds=self._lag(),
            known=self.known,
            differing=self.differing,
            left_out=self.left_out.rows,
            left_out_rows=self.left_out.named,
            adopted=self.prepared.adopted,
            registered=registered,
        )

    def _next(self) -> bool:
        """One batch from its plan to its commit, all through one handle; False where there is nothing to do."""
        handle = self.lake.opened(TABLE)
        check_prepared(handle, self.cluster, self.prepared)
        offset = offset_of(handle)
        begin = self.prepared.begin if self.batches == 0 else None
        start = offset if begin is None else begin
        self.start = start if self.start is None else self.start
        self.end = max(self.end, start)
        if start >= self.cluster.safe:
            return False
        batch = self._plan(start)
        foreign = self._foreign() if begin is not None or offset == 0 else 0
        if not (batch.rows or foreign or begin is not None):
            return False
        self._carry(handle, batch, foreign)
        return True

    def _plan(self, start: int) -> Batch:
        values = {"start": str(start), "safe": str(self.cluster.safe), "most": self.batch_rows, "step": STEP}
        rows, before_last, marks = self.database.one("plan_batch", values)
        batch = batch_of(start, self.cluster.safe, (rows, before_last, marks), self.batch_rows)
        if batch.rows <= self.batch_rows:
            return batch
        [[rows]] = self.database.fetch("count_range", {"low": str(marks[0]), "high": str(marks[0] + 1)})
        return Batch(batch.start, batch.end, rows, (marks[0],) * -(-rows // STEP))

    def _foreign(self) -> int:
        """Rows with ids of the future came with a dump of another cluster. All are there already: the lake takes them at its beginning."""
        [[rows]] = self.database.fetch("count_range", {"low": str(self.cluster.next), "high": None})
        return int(rows)

    def _carry(self, handle: DeltaTable, batch: Batch, foreign: int) -> None:
        """Copy a batch and commit it with its offset, through the handle that the offset was read from."""
        if batch.end <= batch.start:
            raise PipelineError(f"The export would go back from transaction {batch.start} to {batch.end}: nothing was written.")
        chosen = cuts(batch, slots=spread.slots(self.spark()), largest=self.file_rows)
        chosen += whole(self.cluster.next, foreign, self.file_rows)
        written = spread.copy(self.spark(), self._reading(handle, batch, chosen), self.database.connections)
        try:
            check_same(self.cluster, clusters.read(self.database))
        except BaseException:
            self.lake.discard(TABLE, written.files)
            raise
        self.lake.commit(handle, TABLE, written.files, offset=(OFFSET, batch.end))
        self.rows, self.files, self.batches = self.rows + written.rows, self.files + len(written.files), self.batches + 1
        self.known, self.differing, self.end = self.known + written.known, self.differing + written.differing, batch.end
        if written.rows + written.known < batch.rows + foreign:
            self._name_left_out(batch, foreign)

    def _name_left_out(self, batch: Batch, foreign: int) -> None:
        """Say which rows were counted and cannot be in the lake, if it was not retention that deleted some dead messages meanwhile."""
        ranges = [(batch.start, batch.end), *([(self.cluster.next, None)] if foreign else [])]
        found = sum((left_out.find(self.database, self.prepared.columns, *one) for one in ranges), Found())
        self.left_out += found
        if found.rows:
            self.say(str(found))

    def _reading(self, handle: DeltaTable, batch: Batch, chosen: list[Cut]) -> Reading:
        columns, broken = select_list(self.prepared.columns).as_string(None), fault(self.prepared.columns).as_string(None)
        select = self.database.statement("read_cut").decode().replace("%%", "%").replace("@columns@", columns).replace("@fault@", broken)
        return Reading(
            conninfo=self.database.complete_conninfo("export"),
            check=self.database.statement("read_cluster").decode(),
            expected=(self.cluster.system_identifier, self.cluster.timeline, self.cluster.database, batch.end),
            select=select,
            place=self.lake.place,
            table=TABLE,
            schema=schema_of(handle),
            name=f"part-{uuid.uuid4()}",
            cuts=tuple(chosen),
            # A row may have been settled again by a later transaction, in another batch than the one that the lake has it of.
            known=known_from(handle, self.lake.place, batch.start if self.prepared.begin is None else self.prepared.begin),
        )

    def _lag(self) -> float:
        [[seconds]] = self.database.fetch("read_lag", {"end": str(self.end)})
        return round(max(0.0, float(seconds)), 3)
