"""Compaction: small files of days that are over become few, and files that belong to no version any more go."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

from relay.errors import PipelineError
from relay.pipeline.compact.merge import Merge
from relay.pipeline.compact.packing import FULL, Pack, packs
from relay.pipeline.lake.data_files import delete_written
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.errors import sentences
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VACUUMED = ("stats_window", "stats_hour", "stats_day")
"""Tables of one file a day, whose replaced files stay behind."""
LEAST_RETENTION = 168
"""Hours that a file stays after it left the table: readers of an older version and exports that still write need theirs."""
AT_ONCE = 64
"""Files that are made for one commit: a job that is killed loses the work on so many."""

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
    spark: Callable[[], SparkSession] | None = None,
    retention_hours: int = LEAST_RETENTION,
    full: int = FULL,
    now: datetime | None = None,
) -> Compacted:
    """Make large files of small ones, day by day; remove what no version of the last `retention_hours` needs.

    Args:
        lake: whose archive is rewritten.
        database: knows which days are over.
        say: hears of each day.
        spark: starts, or returns, the session whose tasks write where there is much to do; without it this process does.
        retention_hours: how long a file stays that left the table.
        full: bytes that a file has at the most.
        now: instead of PostgreSQL's time.

    Raises:
        PipelineError: `retention_hours` is below 168.
        LakeError: there is no such table, a file of it is missing or damaged, or it cannot be written.
        ConflictError: another job rewrote the same files.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    if retention_hours < LEAST_RETENTION:
        raise PipelineError(
            f"A vacuum keeps at least {LEAST_RETENTION} hours, for exports and readers still need those files: give no less."
        )
    begin = time.monotonic()
    (today,) = database.one("read_today", {"now": now})
    before = len(lake.check_files(TABLE))
    days = _compact(lake, packs(files(lake.opened(TABLE)), today, full), Carrier(spark, say, database.connections), say)
    removed = sum(_vacuum(lake, name, retention_hours) for name in (TABLE, *VACUUMED))
    say(f"{many(removed, 'file')} removed that no version needs")
    return Compacted(days, before, len(files(lake.opened(TABLE))), removed, time.monotonic() - begin)


def _compact(lake: Lake, todo: Sequence[Pack], carrier: Carrier, say: Progress) -> tuple[date, ...]:
    """The days that were rewritten. What was committed before a failure stays."""
    for first in range(0, len(todo), AT_ONCE):
        some = todo[first : first + AT_ONCE]
        _rewrite(lake, some, carrier)
        for line in _lines(some):
            say(line)
    return tuple(dict.fromkeys(pack.day for pack in todo))


def _rewrite(lake: Lake, some: Sequence[Pack], carrier: Carrier) -> None:
    """Write one file for each pack, and put it in the place of the others; no row changes by that."""
    merge = Merge(lake.place, TABLE, schema_of(lake.opened(TABLE)), f"part-{uuid.uuid4()}")
    try:
        written = list(carrier.each(merge, some))
    except BaseException:
        delete_written(lake.place, TABLE, merge.name)
        raise
    lake.replace(TABLE, written, [file for pack in some for file in pack.files])


def _lines(some: Sequence[Pack]) -> Iterator[str]:
    became = Counter(pack.day for pack in some)
    for day in sorted(became):
        before = sum(len(pack.files) for pack in some if pack.day == day)
        yield f"{day}: {many(before, 'file')} became {became[day]:,}"


def _vacuum(lake: Lake, table: str, hours: int) -> int:
    """Files that were removed, none where there is no such table."""
    if (handle := lake.open(table)) is None:
        return 0
    with sentences(lake.place):
        return len(handle.vacuum(retention_hours=hours, dry_run=False, full=True))
