"""Compaction: many small files of a closed day become few, and files that belong to no version any more go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from deltalake.exceptions import CommitFailedError

from relay.errors import ConflictError, PipelineError
from relay.pipeline.archive import DAY
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.lake_errors import sentences
from relay.pipeline.words import many

VACUUMED = ("stats_window", "stats_hour", "stats_day")
"""Tables of one file a day, whose replaced files stay behind."""
LEAST_RETENTION = 168
"""Hours that a file stays after it left the table: readers of an older version and exports that still write need theirs."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Compacted:
    """Files of the table before and after, days that were rewritten, and files that the vacuum removed, those of the numbers too."""

    days: tuple[date, ...]
    files_before: int
    files_after: int
    removed: int
    seconds: float


def run(
    *,
    lake: Lake,
    database: Database,
    say: Progress,
    retention_hours: int = LEAST_RETENTION,
    table: str = "archive",
    now: datetime | None = None,
) -> Compacted:
    """Rewrite each day that is over and has more than one file; remove what no version of the last `retention_hours` needs.

    Raises:
        PipelineError: `retention_hours` is below 168.
        LakeError: there is no such table, a file of it is missing or cut, or it cannot be written.
        ConflictError: another job changed the same day.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    if retention_hours < LEAST_RETENTION:
        raise PipelineError(
            f"A vacuum keeps at least {LEAST_RETENTION} hours, for exports and readers still need those files: give no less."
        )
    begin = time.monotonic()
    (today,) = database.one("read_today", {"now": now})
    before = len(lake.check_files(table))
    days = tuple(day for day in lake.days(table) if day < today and _compact(lake, table, day, say))
    removed = sum(_vacuum(lake, name, retention_hours) for name in (table, *VACUUMED))
    say(f"{many(removed, 'file')} removed that no version needs")
    return Compacted(days, before, len(lake.opened(table).file_uris()), removed, time.monotonic() - begin)


def _compact(lake: Lake, table: str, day: date, say: Progress) -> bool:
    """Whether the day had more than one file."""
    chosen = [(DAY.name, "=", day.isoformat())]
    handle = lake.opened(table)
    before = len(handle.file_uris(file_pruning_predicate=chosen))
    if before < 2:  # noqa: PLR2004 - one file is as few as can be
        return False
    with sentences(lake.place):
        try:
            handle.optimize.compact(partition_filters=chosen, max_concurrent_tasks=1)
        except CommitFailedError as error:
            raise ConflictError(f"Another job changed the day {day} meanwhile: run this again.") from error
    say(f"{day}: {many(before, 'file')} became {len(handle.file_uris(file_pruning_predicate=chosen))}")
    return True


def _vacuum(lake: Lake, table: str, hours: int) -> int:
    """Files that were removed, none where there is no such table."""
    if (handle := lake.open(table)) is None:
        return 0
    with sentences(lake.place):
        return len(handle.vacuum(retention_hours=hours, dry_run=False, full=True))
