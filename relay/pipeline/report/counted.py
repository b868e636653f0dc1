"""What the metrics counted within a span: read from the lake's numbers, added up over routing keys, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from relay.errors import LakeError
from relay.pipeline import histogram, stats
from relay.pipeline.archive import INSTANT
from relay.pipeline.lake import Lake
from relay.pipeline.lake_errors import sentences
from relay.pipeline.report.model import Counts, Exchange, Figures, Latency, Moment, Span

_HELD = 20_000
"""Rows of numbers that are held before they are added up."""
_DAY_US = stats.DAY_SECONDS * 1_000_000


@dataclass(frozen=True)
class Counted:
    """The numbers of a span; all empty where nothing was counted."""

    total: Figures
    targets_ms: tuple[int, ...]
    moments: tuple[Moment, ...]
    exchanges: tuple[Exchange, ...]


def read(lake: Lake, span: Span) -> Counted:
    """Read what was counted in a span.

    Raises:
        LakeError: the numbers are of another form, or cannot be read.
        UnreachableError: the object store does not answer.
    """
    table = "stats_window" if span.step < timedelta(hours=1) else "stats_hour"
    step = int(span.step.total_seconds())
    targets: set[int] = set()
    over_time, by_hour = _Sum(step), _Sum(stats.HOUR_SECONDS)
    for batch in _batches(lake, table, span):
        rows = pa.Table.from_batches([batch])
        targets.update(pc.unique(rows["target_ms"]).to_pylist())
        over_time.add(rows)
        by_hour.add(rows.set_column(0, "start", _hour_of_day(rows["start"])))
    steps = over_time.result()
    hours = _hours(by_hour.result())
    return Counted(
        total=_total(steps),
        targets_ms=tuple(sorted(targets)),
        moments=tuple(Moment(row["start"].astimezone(UTC), _figures(row)) for row in _merged(steps, step, exchange="")),
        exchanges=tuple(Exchange(row["exchange"], _figures(row), hours[row["exchange"]]) for row in _merged(steps, step, start=span.since)),
    )


class _Sum:
    """Numbers by start and exchange, added up as they come."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows; their keys and codes are forgotten."""
        self._parts.append(_with(rows, routing_key="", codes="{}"))
        if sum(part.num_rows for part in self._parts) > _HELD:
            self._parts = [self.result()]

    def result(self) -> pa.Table:
        """What was added so far."""
        return stats.merge(pa.concat_tables(self._parts).combine_chunks(), seconds=self._seconds) if self._parts else stats.empty()


def _batches(lake: Lake, table: str, span: Span) -> Iterator[pa.RecordBatch]:
    days = [day for day in lake.days(table) if span.since.date() <= day <= span.until.date()]
    if not days:
        return
    dataset = lake.dataset(table, days=days)
    if missing := set(stats.SCHEMA.names) - set(dataset.schema.names):
        raise LakeError(
            f"The table {table} of {lake.place.url} lacks {', '.join(sorted(missing))}: remove it and run `relay pipeline metrics`."
        )
    within = (ds.field("start") >= pa.scalar(span.since, INSTANT)) & (ds.field("start") < pa.scalar(span.until, INSTANT))
    with sentences(lake.place):
        for batch in dataset.to_batches(columns=stats.SCHEMA.names, filter=within):
            if batch.num_rows:
                yield batch.cast(stats.SCHEMA)


def _hour_of_day(start: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same hour on the first day of all."""
    since_day = pc.subtract(start.cast(pa.int64()), pc.floor_temporal(start, unit="day").cast(pa.int64()))
    return since_day.cast(pa.int64()).cast(INSTANT)


def _hours(by_hour: pa.Table) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for exchange, start, count in zip(
        by_hour["exchange"].to_pylist(), by_hour["start"].cast(pa.int64()).to_pylist(), stats.messages(by_hour).to_pylist(), strict=True
    ):
        found.setdefault(exchange, [0] * 24)[start % _DAY_US // (stats.HOUR_SECONDS * 1_000_000)] += count
    return {exchange: tuple(hours) for exchange, hours in found.items()}


def _total(steps: pa.Table) -> Figures:
    rows = list(_merged(steps, stats.WINDOW_SECONDS, start=datetime(2000, 1, 1, tzinfo=UTC), exchange=""))
    return _figures(rows[0]) if rows else Figures(Counts())


def _merged(rows: pa.Table, seconds: int, **same: object) -> Iterable[dict[str, Any]]:
    """Add up what becomes the same with these values."""
    if not rows.num_rows:
        return []
    found: list[dict[str, Any]] = stats.merge(_with(rows, **same), seconds=seconds).to_pylist()
    return found


def _with(rows: pa.Table, **same: object) -> pa.Table:
    for name, value in same.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.repeat(pa.scalar(value, rows.schema.field(name).type), rows.num_rows))
    return rows


def _figures(row: dict[str, Any]) -> Figures:
    return Figures(Counts(**{name: row[name] for name in stats.SUMS}), *(_latency(row[name]) for name in stats.HISTOGRAMS))


def _latency(buckets: list[int]) -> Latency | None:
    p50, p95, p99 = (histogram.percentile(buckets, share) for share in (0.5, 0.95, 0.99))
    return None if p50 is None or p95 is None or p99 is None else Latency(p50, p95, p99)
