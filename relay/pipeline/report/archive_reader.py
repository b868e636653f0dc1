"""What a report reads from the archive: its number of rows, dead messages by code with an example, and the slowest keys; no contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.report.model import DEAD, Failure, ReportSpan, SlowKey
from relay.pipeline.source.columns import INSTANT
from relay.pipeline.text import many

FAILURES = 15
SLOW_KEYS = 10
_DUE = ("created_at", "available_at", "confirmed_at", "attempts")
_EXAMPLE = ("id", "exchange", "routing_key", "result", "error_code", "error_detail", "archived_at")
_HELD = 200_000
"""Partial sums, one row for each key, that are kept in memory before they are merged."""


@dataclass(frozen=True)
class Scanned:
    """What was found in the archive's rows of a span."""

    rows: int
    failures: tuple[Failure, ...]
    slow_keys: tuple[SlowKey, ...]


def read(lake: Lake, span: ReportSpan, say: Callable[[str], None]) -> Scanned:
    """Scan the rows of a span, day by day; errors as `Lake.dataset`."""
    routing, ordering, failures, rows = _Keys("routing"), _Keys("ordering"), _Failures(), 0
    for day in [day for day in lake.days("archive") if span.since.date() <= day <= span.until.date()]:
        dataset = lake.dataset("archive", days=[day])
        for batch in _batches(lake, dataset, span, ["result", "routing_key", "ordering_key", *_DUE]):
            rows += batch.num_rows
            sent = batch.filter(pc.and_(pc.equal(batch["result"], "success"), pc.is_valid(batch["confirmed_at"])))
            routing.add(sent)
            ordering.add(sent)
        for batch in _batches(lake, dataset, span, _EXAMPLE, only=ds.field("result").isin(DEAD)):
            failures.add(batch)
        say(f"{day}: {many(rows, 'message')} read so far")
    return Scanned(rows, failures.top(), (*routing.slowest(), *ordering.slowest()))


def _batches(
    lake: Lake, dataset: ds.Dataset, span: ReportSpan, columns: Sequence[str], *, only: ds.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    at = ds.field("archived_at")
    within = (at >= pa.scalar(span.since, INSTANT)) & (at < pa.scalar(span.until, INSTANT))
    with scanning(lake.place, "archive", dataset.files):
        for batch in dataset.to_batches(columns=list(columns), filter=within if only is None else within & only):
            if batch.num_rows:
                yield batch


class _Keys:
    """Latencies of the successes by one kind of key: their number, sum and maximum."""

    def __init__(self, kind: Literal["routing", "ordering"]) -> None:
        self._kind = kind
        self._parts: list[pa.Table] = []

    def add(self, sent: pa.RecordBatch) -> None:
        """Add confirmed messages."""
        ways = pa.table({"key": sent[f"{self._kind}_key"], "way": _ways(sent)})
        ways = ways.filter(pc.is_valid(ways["key"]))
        found = ways.group_by("key").aggregate([("way", "count"), ("way", "sum"), ("way", "max")])
        self._parts.append(found.rename_columns(["key", "messages", "together", "longest"]))
        if sum(part.num_rows for part in self._parts) > _HELD:
            self._parts = [self._sum()]

    def slowest(self) -> list[SlowKey]:
        """The keys with the highest latencies."""
        rows = _best(self._sum(), [("longest", "descending"), ("key", "ascending")], SLOW_KEYS) if self._parts else []
        return [
            SlowKey(self._kind, row["key"], row["messages"], row["together"] / row["messages"] / 1000, row["longest"] / 1000)
            for row in rows
        ]

    def _sum(self) -> pa.Table:
        sums = [("messages", "sum"), ("together", "sum"), ("longest", "max")]
        return pa.concat_tables(self._parts).group_by("key").aggregate(sums).rename_columns(["key", "messages", "together", "longest"])


def _ways(sent: pa.RecordBatch) -> pa.Array:
    """Microseconds from when each message was due until its confirm.

    A retried message counts from created_at: a retry moves available_at, and measured from there a late message would look fast.
    """
    created, available, confirmed = (sent[name].cast(INSTANT).cast(pa.int64()) for name in ("created_at", "available_at", "confirmed_at"))
    due = pc.if_else(pc.greater(sent["attempts"], 1), created, pc.max_element_wise(created, available))
    return pc.max_element_wise(pc.subtract(confirmed, due), 0)


class _Failures:
    """The number of dead messages by result and code, and the latest message of each."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str | None], int] = {}
        self._latest: dict[tuple[str, str | None], dict[str, Any]] = {}

    def add(self, dead: pa.RecordBatch) -> None:
        """Add dead messages."""
        numbered = pa.Table.from_batches([dead]).append_column("place", pa.array(range(dead.num_rows)))
        ordered = numbered.select(["result", "error_code", "place", "archived_at"]).sort_by("archived_at")
        found = ordered.group_by(["result", "error_code"], use_threads=False).aggregate([("place", "last"), ("place", "count")])
        for group in found.to_pylist():
            self._note((group["result"], group["error_code"]), group["place_count"], dead.slice(group["place_last"], 1).to_pylist()[0])

    def top(self) -> tuple[Failure, ...]:
        """The most frequent pairs of result and code."""
        ordered = sorted(self._messages.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
        return tuple(_failure(self._latest[kind], messages) for kind, messages in ordered[:FAILURES])

    def _note(self, kind: tuple[str, str | None], messages: int, latest: dict[str, Any]) -> None:
        self._messages[kind] = self._messages.get(kind, 0) + messages
        if kind not in self._latest or self._latest[kind]["archived_at"] <= latest["archived_at"]:
            self._latest[kind] = latest


def _failure(row: dict[str, Any], messages: int) -> Failure:
    return Failure(
        row["result"], row["error_code"], messages, row["id"], row["exchange"], row["routing_key"], row["error_detail"],
        row["archived_at"].astimezone(UTC),
    )  # fmt: skip


def _best(rows: pa.Table, keys: list[tuple[str, str]], count: int) -> Iterable[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.take(pc.sort_indices(rows, sort_keys=keys)[:count]).to_pylist()
    return found
