"""Replay from the lake: enqueues the messages that a filter selects, each once in a job, at a given rate. Needs no JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from relay.errors import PipelineError
from relay.message import LONGEST_JOB, SHOWN
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.id_places import refuse_shared
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.target_table import refuse_foreign
from relay.pipeline.replay.lake_source import LakeSource
from relay.pipeline.replay.selection import Selection
from relay.pipeline.signals import deferred
from relay.pipeline.source.database import GONE, Database
from relay.pipeline.text import many, some

Progress = Callable[[str], None]
Row = dict[str, Any]
BATCH = 500
"""The most messages of one transaction; at a low rate it has fewer."""
BATCH_BYTES = 8 << 20
"""The most bytes of contents in one transaction. A single larger message has a transaction of its own."""
BATCHES_A_SECOND = 4
"""How many transactions share the messages of one second, so that messages do not come in bursts."""
_SAY_EVERY = 2.0


class ReplayRefusal(NamedTuple):
    """A message that the queue refused, and why. The ledger does not have the message, so the next run of the job tries it again."""

    xid: int
    seq: int
    id: str
    exchange: str
    reason: str


class ReplayCount(NamedTuple):
    """The number of messages to replay with one exchange and result."""

    exchange: str
    result: str
    messages: int


@dataclass(frozen=True)
class Replayed:
    """The result of a replay: `found` = `done_before` + `enqueued` + `refused` + `left`.

    Messages are `left` because of a limit, a dry run or another run. `failure` is why the replay was cut short after messages were
    enqueued; `enqueued` then counts only messages that were certainly enqueued. `exit_code` is that of the failure, or 1 if a message was
    refused.
    """

    job: str
    dry_run: bool
    found: int
    done_before: int
    enqueued: int
    refused: int
    left: int
    counts: tuple[ReplayCount, ...]
    refusals: tuple[ReplayRefusal, ...]
    seconds: float
    failure: str | None = None
    exit_code: int = 0


def run(
    *,
    lake: Lake,
    database: Database,
    say: Progress,
    selection: Selection,
    job: str | None = None,
    rate: float | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    same_id: bool = False,
) -> Replayed:
    """Enqueue the lake's messages of a selection, in the order of archiving; with `dry_run` only count them.

    A job enqueues each message once, however often the job is run or killed: the transaction that enqueues also writes the job's ledger. By
    default the filter determines the job's name, so a second run with the same filter and times enqueues nothing again. A job never replays
    messages that it has enqueued itself.

    Args:
        lake: where the archive is.
        database: where the queue and the ledger are.
        say: called with each line about the progress.
        selection: which messages are replayed.
        job: name of the ledger, 1 to 255 bytes.
        rate: the most messages enqueued in a second.
        limit: the most messages enqueued. Refused messages do not count; otherwise the first of them would use up the limit in each run.
        dry_run: change nothing.
        same_id: keep the messages' ids, for consumers that ignore messages they have already received.

    Raises:
        PipelineError: the filter is empty, an id is in no message or several, an argument is invalid, PostgreSQL refused, or the lake is
            another archive's.
        LakeError: the lake has no archive, or the archive cannot be read.
        UnreachableError: PostgreSQL or the object store does not answer.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or no number for SIGINT.

    If one of these errors is raised, nothing was enqueued. An error after the first enqueued message becomes part of the result instead. To
    continue, run the job again.
    """
    if selection.is_everything:
        raise PipelineError("Say what to replay: at least one of a time, exchange, routing key, ordering key, result, code or id.")
    job = _name(job, selection, same_id=same_id)
    began = time.monotonic()
    refuse_foreign(lake, database)
    source = _source(lake, database, selection, job, dry_run=dry_run)
    todo = source.found if limit is None else min(source.found, limit)
    say(_beginning(source, todo))
    work = _Work(database, say, job, same_id=same_id, found=source.found, todo=todo)
    if not dry_run:
        work.carry_out(source.rows(todo), rate)
    return work.replayed(source, dry_run=dry_run, seconds=time.monotonic() - began)


def _name(job: str | None, selection: Selection, *, same_id: bool) -> str:
    if job is None:
        return selection.job(same_id=same_id)
    if not 1 <= len(job.encode()) <= LONGEST_JOB:
        raise PipelineError(f"The job's name must have 1 to {LONGEST_JOB} bytes.")
    return job


def _source(lake: Lake, database: Database, selection: Selection, job: str, *, dry_run: bool) -> LakeSource:
    """The lake's messages of the selection, without messages that the job has already replayed, and without the job's own replays."""
    ledger = database.fetch("read_replay_ledger", {"job": job})
    done, made = {(xid, seq) for xid, seq, _ in ledger}, {made for _, _, made in ledger}
    source = LakeSource.of(lake, selection, done=done, made=made, dry_run=dry_run)
    _refuse_missing(source.missing)
    refuse_shared(source.shared, "enqueued", "narrow the filter, such as by exchange or time, to the one that is meant")
    return source


def _refuse_missing(ids: Sequence[str]) -> None:
    """Refuse to replay only some of the ids that were named."""
    if ids:
        raise PipelineError(
            f"Nothing matches {some(ids)}: the lake has no such message that meets the rest of the filter, and nothing "
            "was enqueued; correct it, or export first."
        )


def _beginning(source: LakeSource, todo: int) -> str:
    """One sentence on what was found."""
    found = source.found + source.done_before
    if not found:
        return "Nothing matches: the lake has no such message; correct the filter, or export first"
    beyond = f", {source.found - todo:,} left for another run by the limit" if todo < source.found else ""
    return f"{many(found, 'message')} found, {source.done_before:,} of them enqueued by this job before{beyond}"


class _Work:
    """Enqueues rows batch by batch, and counts them."""

    def __init__(self, database: Database, say: Progress, job: str, *, same_id: bool, found: int, todo: int) -> None:
        self._database, self._say, self._job, self._same_id = database, say, job, same_id
        self._found, self._todo = found, todo
        self._began = self._said = time.monotonic()
        self.tried = self.enqueued = self.refused = 0
        self.refusals: list[ReplayRefusal] = []
        self._guard = CommitGuard()

    def carry_out(self, rows: Iterator[Row], rate: float | None) -> None:
        """Do the whole replay. After the first enqueued message, an error or a signal cuts it short, but is not raised."""
        with self._guard.kept():
            self._go(rows, rate)

    def _go(self, rows: Iterator[Row], rate: float | None) -> None:
        """Enqueue the messages that are left, on average at most `rate` a second since the beginning."""
        most = BATCH if rate is None else max(1, int(min(BATCH, rate / BATCHES_A_SECOND)))
        batches = _batches(rows, lambda: min(most, self._todo - self.enqueued))
        while self._left and (batch := next(batches, None)):
            self._enqueue(batch)
            self._tell()
            if rate is not None:
                time.sleep(max(0.0, self._began + self.enqueued / rate - time.monotonic()))

    @property
    def _left(self) -> int:
        """Messages that this run may still enqueue."""
        return min(self._todo - self.enqueued, self._found - self.tried)

    def replayed(self, source: LakeSource, *, dry_run: bool, seconds: float) -> Replayed:
        """The result of the replay; a dry run counts what is to do."""
        counts = source.counts(self._todo if dry_run else self.tried)
        failure = self._guard.failure("replay", f"{many(self.enqueued, 'message')} enqueued", say=self._say)
        return Replayed(
            self._job, dry_run, source.found + source.done_before, source.done_before, self.enqueued, self.refused,
            source.found - self.enqueued - self.refused, tuple(ReplayCount(*key, messages) for key, messages in sorted(counts.items())),
            tuple(self.refusals), seconds, failure, self._guard.exit_code or (1 if self.refused else 0),
        )  # fmt: skip

    def _enqueue(self, rows: Sequence[Row]) -> None:
        """Enqueue rows in one transaction. A batch that is refused because of one row is halved until this row is alone."""
        try:
            with deferred(self._database.cancel):
                self._count(rows, self._database.fetch("enqueue_replayed", {"job": self._job, "same_id": self._same_id, **_columns(rows)}))
        except PipelineError as error:
            words = self._words(error.__cause__)
            if words is None:
                raise
            if len(rows) == 1:
                self._refuse(rows[0], words)
                return
            middle = len(rows) // 2
            self._enqueue(rows[:middle])
            self._enqueue(rows[middle:])

    def _count(self, rows: Sequence[Row], enqueued: Sequence[object]) -> None:
        self.tried, self.enqueued = self.tried + len(rows), self.enqueued + len(enqueued)
        self._guard.committed = self.enqueued > 0

    def _words(self, error: BaseException | None) -> str | None:
        """Why one of the messages is refused; None if the error has another cause, so that a smaller batch would fail as well."""
        if not isinstance(error, psycopg.Error) or error.sqlstate is None or error.sqlstate.startswith(GONE):
            return None
        found: str | None
        [found] = self._database.one("read_refusal", {"state": error.sqlstate, "words": error.diag.message_primary})
        return found

    def _refuse(self, row: Row, words: str) -> None:
        self.refused, self.tried = self.refused + 1, self.tried + 1
        if len(self.refusals) < SHOWN:
            self.refusals.append(ReplayRefusal(row["xid"], row["seq"], row["id"], row["exchange"], words))
            self._say(f"Message {row['id']} was refused: {words}")

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY or not self._left:
            self._said = now
            speed = self.enqueued / max(now - self._began, 1e-3)
            self._say(f"{many(self.enqueued, 'message')} enqueued, {speed:,.0f} a second, {self._left:,} to go")


def _batches(rows: Iterator[Row], room: Callable[[], int]) -> Iterator[list[Row]]:
    """Rows in lists of at most BATCH_BYTES, or of one larger row. `room` is called at the beginning of each list, and bounds its rows."""
    batch: list[Row] = []
    held = most = 0
    for row in rows:
        size = len(row["content"] or "") + len(row["body"] or b"") + len(row["options"])
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch = []
        if not batch:
            held, most = 0, room()
        batch.append(row)
        held += size
        if len(batch) >= most:
            yield batch
            batch = []
    if batch:
        yield batch


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The rows as arrays, one for each parameter of the statement."""
    plural = {
        "seq": "seqs", "id": "ids", "exchange": "exchanges", "routing_key": "routing_keys", "content": "contents", "body": "bodies",
        "options": "options", "ordering_key": "ordering_keys", "expires_at": "expires_ats",
    }  # fmt: skip
    return {"xids": [str(row["xid"]) for row in rows], **{many: [row[one] for row in rows] for one, many in plural.items()}}
