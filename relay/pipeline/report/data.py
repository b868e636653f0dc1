"""Collects a report: numbers and rows from the lake, dead messages and verification from PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from relay.errors import PipelineError
from relay.pipeline.lake.assessment import LakeRecord
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import OFFSET
from relay.pipeline.metrics import lake_state
from relay.pipeline.report import archive_reader, metrics_reader
from relay.pipeline.report.model import DaySize, DeadMessage, Inventory, Partition, Quality, Report, ReportSpan, Unacknowledged
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier, Start

DEAD_LETTERS = 20
"""How many dead messages are listed."""
_STEPS = ((timedelta(days=2), timedelta(minutes=5)), (timedelta(days=32), timedelta(hours=1)))
"""Pairs of longest span and length of a step; a span longer than all of these has steps of a day."""


def span_of(since: datetime | None, until: datetime | None, *, now: datetime) -> ReportSpan:
    """The span from `since` (by default a week before its end) to `until` (by default now), widened to whole steps.

    Raises:
        PipelineError: the span would be empty.
    """
    end = (until or now).astimezone(UTC)
    begin = (since or end - timedelta(days=7)).astimezone(UTC)
    if begin >= end:
        raise PipelineError(f"The report's time would end before it begins: {begin:%Y-%m-%d %H:%M} must be before {end:%Y-%m-%d %H:%M}.")
    step = next((step for longest, step in _STEPS if end - begin <= longest), timedelta(days=1))
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    return ReportSpan(midnight + (begin - midnight) // step * step, midnight - (midnight - end) // step * step, step)


def collect(
    lake: Lake, database: Database, span: ReportSpan, *, now: datetime, say: Callable[[str], None], spark: Start | None = None
) -> Report:
    """Read everything that a report shows; Spark starts only for a large archive.

    Raises the errors of `archive_reader.read` and `Database.fetch`.
    """
    say("asking PostgreSQL for dead messages and verification")
    unacknowledged = _unacknowledged(database)
    rows = archive_reader.read(lake, span, Carrier(spark, say, database.connections), say)
    return Report(
        made_at=now,
        lake=lake.place.url,
        span=span,
        numbers=metrics_reader.read(lake, span),
        before=metrics_reader.read(lake, span.before),
        failures=rows.failures,
        slow_keys=rows.slow_keys,
        unacknowledged=unacknowledged,
        quality=_quality(lake, database, rows.rows, now),
        inventory=_inventory(lake, database),
    )


def _unacknowledged(database: Database) -> Unacknowledged:
    total, oldest = database.one("count_unacknowledged")
    newest = database.fetch("list_unacknowledged", {"limit": DEAD_LETTERS})
    return Unacknowledged(total, oldest, tuple(DeadMessage(*row) for row in newest))


def _quality(lake: Lake, database: Database, rows: int, now: datetime) -> Quality:
    days = lake.days("archive")
    partitions = tuple(Partition(*verdict) for verdict in database.fetch("list_verdicts", {"schema": database.schema, "now": now}))
    differing = sum(one.verdict == "differs" for one in partitions)
    registered, exported, seen, seen_seconds, problem = database.one("read_lake")
    return Quality(
        archive_rows=rows,
        first=days[0] if days else None,
        last=days[-1] if days else None,
        lake=LakeRecord(
            registered=registered,
            exported=exported,
            seen=seen,
            seen_seconds=seen_seconds,
            problem=problem,
            lag_seconds=_lag(lake, database),
            differing=differing,
        ),
        partitions=partitions,
    )


def _inventory(lake: Lake, database: Database) -> Inventory:
    there = lake_state.read(lake)
    (compared_at,) = database.one("read_last_comparison")
    here = {day: (rows, size) for day, rows, size in database.fetch("list_archive_sizes")}
    lakes = {day.day: (day.files, day.rows, day.bytes) for day in there.days if day.name == "archive"}
    days = sorted({*here, *lakes}, key=lambda day: day or date.max, reverse=True)
    return Inventory(
        days=tuple(DaySize(day, *here.get(day, (None, None)), *lakes.get(day, (None, None, None))) for day in days),
        tables=there.tables(),
        **{f"{job}_at": there.jobs.get(job) for job in ("exported", "computed", "compacted")},
        compared_at=compared_at,
    )


def _lag(lake: Lake, database: Database) -> float | None:
    """Age of the oldest message that is not in the lake; None if nothing was ever exported."""
    handle = lake.open("archive")
    end = handle.transaction_version(OFFSET) if handle else None
    if end is None:
        return None
    (seconds,) = database.one("read_lag", {"end": str(end)})
    return float(seconds)
