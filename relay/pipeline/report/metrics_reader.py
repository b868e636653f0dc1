"""Reads the metrics of a span from the lake, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from relay.errors import LakeError
from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate, histogram
from relay.pipeline.report.groups import Dead, Hours, KeyFigures
from relay.pipeline.report.model import Counts, ExchangeFigures, Figures, Latency, Moment, Numbers, ReportSpan
from relay.pipeline.source.columns import INSTANT

_HELD = 20_000
"""Rows of numbers that are kept in memory before they are added up."""


def read(lake: Lake, span: ReportSpan) -> Numbers:
    """Read the metrics of a span.

    Raises:
        LakeError: the numbers lack a column, or cannot be read.
        UnreachableError: the object store does not answer.
    """
    table = "stats_window" if span.step < timedelta(hours=1) else "stats_hour"
    over_time, hours, dead, keys = _Sum(int(span.step.total_seconds())), Hours(), Dead(span.step), KeyFigures()
    for batch in _batches(lake, table, span):
        rows = pa.Table.from_batches([batch])
        for part in (over_time, hours, dead, keys):
            part.add(rows)
    steps, step, by_exchange = over_time.result(), int(span.step.total_seconds()), hours.by_exchange()
    return Numbers(
        total=_total(steps),
        targets_ms=tuple(sorted(over_time.targets_ms)),
        moments=tuple(Moment(row["start"].astimezone(UTC), _figures(row)) for row in _merged(steps, step, exchange="")),
        exchanges=tuple(ExchangeFigures(row["exchange"], _figures(row), by_exchange[row["exchange"]]) for row in _whole(steps)),
        hours=hours.by_time(),
        dead=dead.result(),
        keys=keys.result(),
    )


class _Sum:
    """Adds up numbers by start and exchange as rows come in."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._parts: list[pa.Table] = []
        self.targets_ms: set[int] = set()

    def add(self, rows: pa.Table) -> None:
        """Add rows without their routing keys and codes."""
        self.targets_ms.update(pc.unique(rows["target_ms"]).to_pylist())
        self._parts.append(_with(rows, routing_key="", codes="{}"))
        if sum(part.num_rows for part in self._parts) > _HELD:
            self._parts = [self.result()]

    def result(self) -> pa.Table:
        """The sum of all rows so far."""
        return aggregate.merge(pa.concat_tables(self._parts).combine_chunks(), seconds=self._seconds) if self._parts else aggregate.empty()


def _batches(lake: Lake, table: str, span: ReportSpan) -> Iterator[pa.RecordBatch]:
    days = [day for day in lake.days(table) if span.since.date() <= day <= span.until.date()]
    if not days:
        return
    dataset = lake.dataset(table, days=days)
    if missing := set(aggregate.SCHEMA.names) - set(dataset.schema.names):
        raise LakeError(
            f"The table {table} of {lake.place.url} lacks {', '.join(sorted(missing))}: remove it and run `relay pipeline metrics`."
        )
    within = (ds.field("start") >= pa.scalar(span.since, INSTANT)) & (ds.field("start") < pa.scalar(span.until, INSTANT))
    with scanning(lake.place, table, dataset.files):
        for batch in dataset.to_batches(columns=aggregate.SCHEMA.names, filter=within):
            if batch.num_rows:
                yield batch.cast(aggregate.SCHEMA)


def _total(steps: pa.Table) -> Figures:
    rows = list(_whole(steps, exchange=""))
    return _figures(rows[0]) if rows else Figures(Counts())


def _whole(steps: pa.Table, **same: object) -> Iterable[dict[str, Any]]:
    """Add up all steps."""
    return _merged(steps, aggregate.WINDOW_SECONDS, start=datetime(2000, 1, 1, tzinfo=UTC), **same)


def _merged(rows: pa.Table, seconds: int, **same: object) -> Iterable[dict[str, Any]]:
    """Set these values in all rows, then add up rows of the same start, exchange and routing key."""
    if not rows.num_rows:
        return []
    found: list[dict[str, Any]] = aggregate.merge(_with(rows, **same), seconds=seconds).to_pylist()
    return found


def _with(rows: pa.Table, **same: object) -> pa.Table:
    for name, value in same.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.repeat(pa.scalar(value, rows.schema.field(name).type), rows.num_rows))
    return rows


def _figures(row: dict[str, Any]) -> Figures:
    return Figures(Counts(**{name: row[name] for name in aggregate.SUMS}), *(_latency(row[name]) for name in aggregate.HISTOGRAMS))


def _latency(buckets: list[int]) -> Latency | None:
    p50, p95, p99 = (histogram.percentile(buckets, share) for share in (0.5, 0.95, 0.99))
    return None if p50 is None or p95 is None or p99 is None else Latency(p50, p95, p99)
