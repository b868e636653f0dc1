"""Computes the numbers of days that changed in the lake's archive, and writes them to the lake and to PostgreSQL.

A day is computed when the lake has another number of its rows than the numbers count: rows are never changed or removed, so an open day is
computed as long as rows come, a closed one once, and again when rows come late. Nothing else is remembered, so a run that was killed, a
compaction and a lost statistics table leave nothing to repair by hand, and a run without new rows writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from relay.errors import PipelineError
from relay.pipeline import lake_state, stats, stats_database, stats_lake, transforms
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.parts import Parts
from relay.pipeline.tasks import failure
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
    stale = _Stale.of(lake, again)
    windows = 0
    for days in stale.groups():
        say(f"{_named(days)}: {many(stale.messages(days), 'message')} to count")
        numbers = _compute(stale.parts(lake, days), spark(), days, target_ms, top_keys)
        windows += _write(lake, database, days, numbers, stale.version or 0)
    copied = _copy(lake, database, say)
    lake_state.record(lake, database)
    return Computed(
        days=len(stale.days),
        messages=stale.messages(stale.days),
        windows=windows,
        copied_days=copied,
        first_day=min(stale.days, default=None),
        last_day=max(stale.days, default=None),
        archive_version=stale.version,
        seconds=round(time.monotonic() - began, 3),
    )


@dataclass(frozen=True)
class _Stale:
    """Days to compute, as one version of the archive has them."""

    archive: DeltaTable | None
    rows: Mapping[date, int]
    days: list[date]

    @classmethod
    def of(cls, lake: Lake, again: Collection[date]) -> _Stale:
        """Those whose numbers count another number of messages than the archive has, and of `again` those that it has."""
        archive = lake.open("archive")
        rows = {} if archive is None else stats_lake.rows_by_day(archive)
        counted = stats_lake.messages_by_day(lake)
        return cls(archive, rows, sorted(day for day, number in rows.items() if counted.get(day) != number or day in again))

    @property
    def version(self) -> int | None:
        """Of the archive; None where there is none."""
        return None if self.archive is None else self.archive.version()

    def messages(self, days: Iterable[date]) -> int:
        """How many messages the archive has of some days."""
        return sum(self.rows[day] for day in days)

    def groups(self) -> Iterator[list[date]]:
        """Days that are computed at once: as many as have few rows together."""
        group: list[date] = []
        for day in self.days:
            if group and self.messages([*group, day]) > _ROWS_AT_ONCE:
                yield group
                group = []
            group.append(day)
        if group:
            yield group

    def parts(self, lake: Lake, days: Iterable[date]) -> Parts:
        """What tasks read of the archive for some days."""
        assert self.archive is not None, "there are no days without an archive"
        return Parts.of(lake.place, "archive", self.archive, days)


def _compute(parts: Parts, spark: SparkSession, days: list[date], target_ms: int, top_keys: int) -> dict[str, pa.Table]:
    """Numbers by grain."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - the JVM is only for this
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        windows = transforms.windows(spark, parts, target_ms=target_ms, top_keys=top_keys)
    except (PySparkException, Py4JError, ConnectionError) as error:
        if (known := failure(error)) is not None:
            raise known from error
        words = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise PipelineError(f"Spark could not count the messages of {_named(days)}: see its logs and run this again ({words}).") from error
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
