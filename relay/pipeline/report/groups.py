"""A report's counts by hour, by exchange and code, and by routing key, added up as rows come in."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.report.model import DeadGroup, RoutingKey
from relay.pipeline.source.columns import INSTANT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Hours:
    """Settled messages by hour and exchange."""

    def __init__(self) -> None:
        self._by_time: Counter[int] = Counter()
        self._by_exchange: dict[str, list[int]] = defaultdict(lambda: [0] * 24)

    def add(self, rows: pa.Table) -> None:
        """Add rows of the metrics."""
        found = pa.table({"hour": _steps(rows, stats.HOUR_SECONDS), "exchange": rows["exchange"], "messages": stats.messages(rows)})
        for row in found.group_by(["hour", "exchange"]).aggregate([("messages", "sum")]).to_pylist():
            self._by_time[row["hour"]] += row["messages_sum"]
            self._by_exchange[row["exchange"]][row["hour"] % 24] += row["messages_sum"]

    def by_exchange(self) -> Mapping[str, tuple[int, ...]]:
        """Messages of each exchange by hour of the day, from 0 to 23."""
        return {exchange: tuple(hours) for exchange, hours in self._by_exchange.items()}

    def by_time(self) -> Mapping[datetime, int]:
        """Messages of all exchanges by the start of each hour, in order of time."""
        return {_EPOCH + timedelta(hours=hour): messages for hour, messages in sorted(self._by_time.items())}


class Dead:
    """Dead messages by exchange and code, each pair by step."""

    def __init__(self, step: timedelta) -> None:
        self._step = step
        self._steps: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)

    def add(self, rows: pa.Table) -> None:
        """Add rows of the metrics."""
        rows = rows.filter(pc.not_equal(rows["codes"], "{}"))
        places = _steps(rows, int(self._step.total_seconds())).to_pylist()
        for place, exchange, codes in zip(places, rows["exchange"].to_pylist(), rows["codes"].to_pylist(), strict=True):
            for code, messages in json.loads(codes).items():
                self._steps[exchange, code][place] += messages

    def result(self) -> tuple[DeadGroup, ...]:
        """The pairs of exchange and code, the most frequent first."""
        groups = (
            DeadGroup(exchange, code or None, steps.total(), {_EPOCH + place * self._step: steps[place] for place in sorted(steps)})
            for (exchange, code), steps in self._steps.items()
        )
        return tuple(sorted(groups, key=lambda group: (-group.messages, group.exchange, group.code or "")))


class KeyFigures:
    """Settled and dead messages by exchange and routing key."""

    def __init__(self) -> None:
        self._settled: Counter[tuple[str, str]] = Counter()
        self._dead: Counter[tuple[str, str]] = Counter()

    def add(self, rows: pa.Table) -> None:
        """Add rows of the metrics."""
        dead = pc.add(pc.add(rows["rejected"], rows["failed"]), rows["lock_expired"])
        found = pa.table(
            {"exchange": rows["exchange"], "key": rows["routing_key"], "settled": stats.messages(rows), "dead": dead}
        ).group_by(["exchange", "key"])
        for row in found.aggregate([("settled", "sum"), ("dead", "sum")]).to_pylist():
            name = (row["exchange"], row["key"])
            self._settled[name] += row["settled_sum"]
            self._dead[name] += row["dead_sum"]

    def result(self) -> tuple[RoutingKey, ...]:
        """The routing keys with dead messages; keys with the most dead messages come first."""
        found = [RoutingKey(*name, self._settled[name], dead) for name, dead in self._dead.items() if dead]
        return tuple(sorted(found, key=lambda one: (-one.dead, one.settled, one.exchange, one.key)))


def _steps(rows: pa.Table, seconds: int) -> pa.ChunkedArray:
    """How many steps lie between 1970 and each row; hours and days of UTC begin at multiples of their length."""
    return pc.divide(rows["start"].cast(INSTANT).cast(pa.int64()), seconds * 1_000_000)
