"""Erasure: removes the contents of chosen messages from the lake, and proves the removal by a scan of every file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from relay.errors import PipelineError
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.erase.archive_check import ArchiveCheck
from relay.pipeline.erase.chosen import ChosenMessages
from relay.pipeline.erase.look import Look, Looker
from relay.pipeline.lake.data_files import delete_removed
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.epoch import OFFSET, offset_of
from relay.pipeline.lake.target_table import linked
from relay.pipeline.lake.witness import DIFFERS
from relay.pipeline.rewriting import AT_ONCE, rewrite
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Erased:
    """Messages that were erased, the rewritten days, the number of rewritten files, and what a scan of all files found afterwards.

    `scanned` counts the files that the last scan has read, without the `removed` files, which were deleted at once. `current` counts files
    of the table that still have contents of chosen messages. `outside` counts files with such contents that are in the table's folder but
    not in the table. `unreadable` counts files outside the table that cannot be read. `left` says in one sentence what to do about all
    these files; it is None if there is no such file. `failure` is why the erasure was cut short after a commit. `exit_code` is that of the
    failure, else 5 if `current` is not 0.
    """

    messages: int
    days: tuple[date, ...]
    files: int
    scanned: int
    current: int
    outside: int
    unreadable: int
    removed: int
    seconds: float
    left: str | None = None
    failure: str | None = None
    exit_code: int = 0


def run(
    *,
    lake: Lake,
    database: Database,
    say: Progress,
    ids: Iterable[str | UUID] = (),
    keys: Iterable[str] = (),
    spark: Callable[[], SparkSession] | None = None,
    at_once: bool = False,
) -> Erased:
    """Erase messages with these ids or ordering keys, and their replays and bundles; PostgreSQL must have erased its copies first.

    Args:
        lake: the lake whose archive is rewritten.
        database: the server that exports to it.
        say: called with a line about each step.
        ids: ids of messages; ID@XID/SEQ is the message at this place alone, without its replays.
        keys: ordering keys, each exactly as it is.
        spark: returns the session whose tasks read and write if there is much to do, and starts it if needed. If None, this process reads
            and writes.
        at_once: delete now the files that were removed from the table. A reader of an older version of the table then fails.

    Raises:
        PipelineError: neither an id nor a key is given, or several messages have one of the ids. Or PostgreSQL still has the contents, or
            exports to another lake.
        LakeError: the table does not exist or cannot be written, or a file of the table is missing or damaged.
        ConflictError: another job rewrote the same files.
        UnreachableError: PostgreSQL or the object store does not answer.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or no number for SIGINT.

    If one of these errors is raised, no file was rewritten or deleted. A later error becomes part of the result instead.
    """
    begin = time.monotonic()
    chosen = ChosenMessages.of(ids, keys)
    if not chosen.columns:
        raise PipelineError("Nothing says which messages to erase: give at least one id or ordering key.")
    linked(lake, database)
    carrier = Carrier(spark, say, database.connections)
    archive = ArchiveCheck(database)
    say("searching PostgreSQL's archive for contents that are not erased")
    job = _Erasure(lake, carrier, say, Looker(lake, carrier, archive, say, archive.begin(chosen)))
    job.carry_out(at_once=at_once)
    return job.result(begin)


@dataclass
class _Erasure:
    """One erasure in progress."""

    lake: Lake
    carrier: Carrier
    say: Progress
    looker: Looker
    messages: int = 0
    done: list[LoggedFile] = field(default_factory=list)
    removed: int = 0
    last: Look | None = None
    guard: CommitGuard = field(default_factory=CommitGuard)

    def carry_out(self, *, at_once: bool) -> None:
        """Do the whole erasure. After the first rewritten or deleted file, an error or a signal cuts it short, but is not raised."""
        with self.guard.kept():
            handle = self.lake.opened(TABLE)
            look = self.looker.look()
            self.looker.refuse(look)
            # An export may have read contents before PostgreSQL erased them. After this commit, that export cannot commit the contents.
            self.lake.repeat(handle, TABLE, (OFFSET, offset_of(handle)))
            self._rewrite(look)
            self.last = self.looker.look() if self.done else look
            if at_once:
                self._delete(self.last)

    def result(self, begin: float) -> Erased:
        """The summary of what is done."""
        last = self.last or Look()
        done = f"contents of {many(self.messages, 'message')} are erased and {many(self.removed, 'old file')} deleted"
        done += "" if self.last else ", and no scan has proved it yet"
        return Erased(
            messages=self.messages,
            days=tuple(sorted({file.day for file in self.done if file.day is not None})),
            files=len(self.done),
            scanned=last.scanned,
            current=len(last.current),
            outside=len(last.outside),
            unreadable=len(last.unreadable),
            removed=self.removed,
            seconds=time.monotonic() - begin,
            left=last.sentence(),
            failure=self.guard.failure("erasure", done, say=self.say),
            exit_code=self.guard.exit_code or (DIFFERS if last.current else 0),
        )

    def _rewrite(self, look: Look) -> None:
        """Rewrite each file of the table that has contents as one new file; each commit replaces several files."""
        todo, change = look.current, self.looker.chosen.erase
        for first in range(0, len(todo), AT_ONCE):
            files = todo[first : first + AT_ONCE]
            rows = Counter({file: look.rows(file) for file in files})
            rewrite(self.lake, self.carrier, [[file] for file in files], change=change, then=partial(self._count, rows))
            self.say(f"{many(rows.total(), 'message')} erased in {many(len(files), 'file')}")

    def _count(self, rows: Counter[LoggedFile]) -> None:
        self.messages += rows.total()
        self.done += rows
        self.guard.committed = True

    def _delete(self, look: Look) -> None:
        """Delete the old files that the log names as removed. Any other file stays, because an export may still commit it."""
        for path in look.deletable(self.lake.removed_files(TABLE)):
            delete_removed(self.lake.place, TABLE, path)
            self.guard.committed = True
            self.removed += 1
            self.last = look = look.without(path)
        if self.removed:
            self.say(f"{many(self.removed, 'file')} deleted that had left the table: a reader of an older version of the table now fails")
