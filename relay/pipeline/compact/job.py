"""Compaction: merges small files of past days, and removes files that no recent version of a table needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING

from relay.errors import PipelineError
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.compact.packing import Pack, packs
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.parquet_writer import FULL
from relay.pipeline.lake.target_table import refuse_foreign
from relay.pipeline.rewriting import AT_ONCE, rewrite
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VACUUMED = ("stats_window", "stats_hour", "stats_day")
"""Tables with one file for each day; a replaced file stays in the folder until a vacuum removes it."""
LEAST_RETENTION = 168
"""The shortest time, in hours, that a file outside the table is kept.

A reader of an older version may need the file, or an export may still commit it.
"""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Compacted:
    """Files of the archive's table before and after, rewritten days, and files that the vacuum removed from all tables.

    `failure` is why the compaction was cut short after some days were rewritten. The rewritten days are complete. In this case
    `files_after` ignores files that other jobs have added. `exit_code` is that of the failure.
    """

    days: tuple[date, ...]
    files_before: int
    files_after: int
    removed: int
    seconds: float
    failure: str | None = None
    exit_code: int = 0


def run(
    *,
    lake: Lake,
    database: Database,
    say: Progress,
    spark: Callable[[], SparkSession] | None = None,
    retention_hours: int = LEAST_RETENTION,
    full: int = FULL,
    now: datetime | None = None,
) -> Compacted:
    """Merge small files into large ones, day by day; remove files that no version of the last `retention_hours` needs.

    Args:
        lake: the lake whose archive is rewritten.
        database: the server whose clock says which days are past.
        say: called with a line about each day.
        spark: returns the session whose tasks write if there is much to do, and starts it if needed. If None, this process writes.
        retention_hours: how long a file is kept after it was removed from the table.
        full: the largest size of a merged file, in bytes.
        now: replaces PostgreSQL's time.

    Raises:
        PipelineError: `retention_hours` is below 168, or the lake is another archive's.
        LakeError: the table does not exist or cannot be written, or a file of the table is missing or damaged.
        ConflictError: another job rewrote the same files.
        UnreachableError: PostgreSQL or the object store does not answer.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or no number for SIGINT.

    If one of these errors is raised, no file was rewritten. An error after the first rewritten file becomes part of the result instead.
    """
    if retention_hours < LEAST_RETENTION:
        raise PipelineError(
            f"A vacuum keeps at least {LEAST_RETENTION} hours, for exports and readers still need those files: give no less."
        )
    begin = time.monotonic()
    refuse_foreign(lake, database)
    (today,) = database.one("read_today", {"now": now})
    before = len(lake.check_files(TABLE))
    job = _Compaction(lake, Carrier(spark, say, database.connections), say, before)
    job.carry_out(packs(files(lake.opened(TABLE)), today, full), retention_hours)
    return job.result(begin)


@dataclass
class _Compaction:
    """One compaction in progress."""

    lake: Lake
    carrier: Carrier
    say: Progress
    before: int
    done: list[Pack] = field(default_factory=list)
    removed: int = 0
    after: int | None = None
    guard: CommitGuard = field(default_factory=CommitGuard)

    def carry_out(self, todo: Sequence[Pack], retention_hours: int) -> None:
        """Do the whole compaction. After the first rewritten file, an error or a signal cuts it short, but is not raised."""
        with self.guard.kept():
            for first in range(0, len(todo), AT_ONCE):
                self._rewrite(some := todo[first : first + AT_ONCE])
                for line in _lines(some):
                    self.say(line)
            for name in (TABLE, *VACUUMED):
                self.removed += _vacuum(self.lake, name, retention_hours)
            self.say(f"{many(self.removed, 'file')} removed that no version needs")
            self.after = len(files(self.lake.opened(TABLE)))

    def result(self, begin: float) -> Compacted:
        """The summary of what is done."""
        days = tuple(dict.fromkeys(pack.day for pack in self.done))
        fewer = sum(len(pack.files) - 1 for pack in self.done)
        return Compacted(
            days=days,
            files_before=self.before,
            files_after=self.before - fewer if self.after is None else self.after,
            removed=self.removed,
            seconds=time.monotonic() - begin,
            failure=self.guard.failure("compaction", f"files of {many(len(days), 'day')} are rewritten", say=self.say),
            exit_code=self.guard.exit_code,
        )

    def _rewrite(self, some: Sequence[Pack]) -> None:
        """Write one file for each pack, and replace the pack's files with it; no row changes."""
        rewrite(self.lake, self.carrier, [pack.files for pack in some], then=partial(self._count, some))

    def _count(self, some: Sequence[Pack]) -> None:
        self.done += some
        self.guard.committed = True


def _lines(some: Sequence[Pack]) -> Iterator[str]:
    became = Counter(pack.day for pack in some)
    for day in sorted(became):
        before = sum(len(pack.files) for pack in some if pack.day == day)
        yield f"{day}: {many(before, 'file')} became {became[day]:,}"


def _vacuum(lake: Lake, table: str, hours: int) -> int:
    """Remove files that no version needs; return how many, 0 if there is no such table."""
    if (handle := lake.open(table)) is None:
        return 0
    with sentences(lake.place):
        return len(handle.vacuum(retention_hours=hours, dry_run=False, full=True))
