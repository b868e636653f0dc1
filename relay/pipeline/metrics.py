"""Computes the numbers of days that changed in the lake's archive, and writes them to the lake and to PostgreSQL.

A day is computed when the lake has another number of its rows than the numbers count: rows are never changed or removed, so an open day is
computed as long as rows come, a closed one once, and again when rows come late. Nothing else is remembered, so a run that was killed, a
compaction and a lost statistics table leave nothing to repair by hand, and a run without new rows writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.errors import PipelineError
from relay.pipeline import stats, stats_database, stats_lake, transforms
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.words import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]

TARGET_MS = 1000
"""Within how many milliseconds from when it was due a message should be confirmed, unless somebody says otherwise."""
TOP_KEYS = 20
"""How many routing keys a day names for each exchange, unless somebody says otherwise."""
SPANS = {"window": stats.WINDOW_SECONDS, "hour": stats.HOUR_SECONDS, "day": stats.DAY_SECONDS}
"""Seconds of each grain, in the order in which they are written: numbers of the day, by which days are judged, come last."""
_ROWS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Computed:
    """What a run did: days computed, their messages, windows written to PostgreSQL, days that PostgreSQL got from the lake."""

    days: int
    messages: int
    windows: int
    copied_days: int
    first_day: date | None
    last_day: date | None
    archive_version: int | None
    seconds: float


def run(
    *,
    lake: Lake,
    database: Database,
    spark: Callable[[], SparkSession],
    say: Progress,
    target_ms: int = TARGET_MS,
    top_keys: int = TOP_KEYS,
    again: Collection[date] = (),
) -> Computed:
    """Compute every day whose rows changed, and those of `again` (after a change of target or keys) in any case.

    A day has one target: a run with another one leaves the days that it does not compute as they are.

    Raises:
        PipelineError: Spark, the lake or PostgreSQL refused.
        ConflictError: another run was faster.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    began = time.monotonic()
    if target_ms < 1 or top_keys < 1:
        raise PipelineError("Target and number of routing keys must be at least 1.")
    archive = lake.open("archive")
    rows = {} if archive is None else stats_lake.rows_by_day(archive)
    version = 0 if archive is None else archive.version()
    counted = stats_lake.messages_by_day(lake)
    stale = sorted(day for day, number in rows.items() if counted.get(day) != number or day in again)
    windows = 0
    for days in _groups(stale, rows):
        say(f"{_named(days)}: {many(sum(rows[day] for day in days), 'message')} to count")
        numbers = _compute(lake, spark(), days, target_ms, top_keys)
        windows += _write(lake, database, days, numbers, version)
    copied = _copy(lake, database, say)
    return Computed(
        days=len(stale),
        messages=sum(rows[day] for day in stale),
        windows=windows,
        copied_days=copied,
        first_day=min(stale, default=None),
        last_day=max(stale, default=None),
        archive_version=None if archive is None else version,
        seconds=round(time.monotonic() - began, 3),
    )


def _groups(days: Iterable[date], rows: dict[date, int]) -> Iterator[list[date]]:
    """Days that are computed at once: as many as have few rows together."""
    group: list[date] = []
    for day in days:
        if group and sum(rows[one] for one in group) + rows[day] > _ROWS_AT_ONCE:
            yield group
            group = []
        group.append(day)
    if group:
        yield group


def _compute(lake: Lake, spark: SparkSession, days: list[date], target_ms: int, top_keys: int) -> dict[str, pa.Table]:
    """Numbers by grain. Windows of named keys are few, whatever the number of rows, so they are added up here."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - the JVM is only for this
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        rows = lake.dataframe(spark, "archive", days=days, columns=[*stats.ARCHIVE_COLUMNS, "day"])
        found = transforms.windows(rows, target_ms=target_ms, top_keys=top_keys).toArrow()
    except (PySparkException, Py4JError, ConnectionError) as error:
        words = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise PipelineError(f"Spark could not count the messages of {_named(days)}: see its logs and run this again ({words}).") from error
    windows = stats.merge(found.cast(stats.SCHEMA))
    return {grain: windows if grain == "window" else stats.merge(windows, seconds=seconds) for grain, seconds in SPANS.items()}


def _write(lake: Lake, database: Database, days: list[date], numbers: dict[str, pa.Table], version: int) -> int:
    """PostgreSQL commits after the lake: what it misses because of a failure in between, the next run copies."""
    with stats_database.replacing(database, days, numbers) as written:
        for grain in SPANS:
            stats_lake.replace(lake, grain, numbers[grain], days, archive_version=version)
    return written


def _copy(lake: Lake, database: Database, say: Progress) -> int:
    """Bring to PostgreSQL the days that it lacks, as after a restore or a failure; days that only PostgreSQL has stay."""
    here, there = stats_lake.messages_by_day(lake), stats_database.messages_by_day(database)
    lacking = sorted(day for day, number in here.items() if there.get(day) != number)
    for day in lacking:
        say(f"{day}: copied to PostgreSQL, which had other numbers")
        with stats_database.replacing(database, [day], {grain: stats_lake.read(lake, grain, [day]) for grain in SPANS}):
            pass
    return len(lacking)


def _named(days: list[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"
