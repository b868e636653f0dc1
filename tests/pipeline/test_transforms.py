"""Archive rows to numbers by Spark: which routing keys are named, by hand, and the same numbers as without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from relay.pipeline import stats, transforms
from tests.support.lake_rows import NOON, dead, row, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
Frame = Callable[..., "DataFrame"]


@pytest.fixture
def frame(spark: SparkSession) -> Frame:
    """Archive rows as a DataFrame in some partitions."""
    return lambda *rows, parts=3: spark.createDataFrame(table(rows)).repartition(parts)


def _computed(rows: DataFrame, *, target_ms: int = 10, top_keys: int = 20) -> pa.Table:
    return stats.merge(transforms.windows(rows, target_ms=target_ms, top_keys=top_keys).toArrow().cast(stats.SCHEMA))


def _named(rows: DataFrame, top_keys: int) -> set[tuple[str, str, str]]:
    return {(str(one.day), one.exchange, one.routing_key) for one in transforms.top_routing_keys(rows, top_keys=top_keys).collect()}


def test_the_busiest_keys_of_a_day_and_exchange_are_named(frame: Frame) -> None:
    """Two for each exchange and day; of equal ones the first in byte order, where capitals come before and umlauts after."""
    keys = {"shop": ["b", "b", "b", "ä", "z", "z", "A"], "mail": ["", "x"]}
    today = [row(exchange=exchange, routing_key=key) for exchange, names in keys.items() for key in names]
    later = [row(at=NOON + timedelta(days=1), routing_key=key) for key in ("z", "ä", "B")]

    assert _named(frame(*today, *later), 2) == {
        ("2026-03-02", "shop", "b"), ("2026-03-02", "shop", "z"), ("2026-03-02", "mail", ""), ("2026-03-02", "mail", "x"),
        ("2026-03-03", "shop", "B"), ("2026-03-03", "shop", "z"),
    }  # fmt: skip


def test_keys_beyond_those_named_are_counted_together(frame: Frame) -> None:
    """In each window, with their latencies and codes; what is named stays by itself, and none is lost."""
    rows = [row(number, routing_key=f"id {number}", at=NOON + timedelta(minutes=number % 2 * 5)) for number in range(6)]
    rows += [row(routing_key="order"), row(routing_key="order"), dead(9, "nack", routing_key="id 9")]
    numbers = _computed(frame(*rows), top_keys=1).to_pylist()

    assert [(NOON, "*other*", 3, 1), (NOON, "order", 2, 0), (NOON + timedelta(minutes=5), "*other*", 3, 0)] == [
        (one["start"], one["routing_key"], one["published"], one["failed"]) for one in numbers
    ]
    assert ('{"nack": 1}', 4) == (numbers[0]["codes"], sum(numbers[0]["wait"]))


def test_other_days_rename_nothing(frame: Frame) -> None:
    """A key that is busy tomorrow does not take a name of today's."""
    today = [row(1, routing_key="a"), row(2, routing_key="a"), row(3, routing_key="b")]
    tomorrow = [row(number, routing_key="b", at=NOON + timedelta(days=1)) for number in range(4, 9)]

    alone = _computed(frame(*today), top_keys=1)
    assert alone.equals(_computed(frame(*today, *tomorrow), top_keys=1).slice(0, alone.num_rows))


@pytest.mark.parametrize("parts", [1, 5])
def test_spark_counts_what_is_counted_without_it(frame: Frame, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rows in any number of partitions give the numbers of all rows at once, though tasks add up in between."""
    monkeypatch.setattr(transforms, "_HELD", 5)
    random = np.random.default_rng(11)
    rows: list[dict[str, Any]] = []
    for number in range(1000):
        at = NOON + timedelta(seconds=int(random.integers(0, 7200)))
        values: dict[str, Any] = {
            "exchange": f"e{number % 3}",
            "routing_key": f"k{number % 7}",
            "at": at,
            "wait": float(random.lognormal(3, 2)),
        }
        rows.append(dead(number, "nack", **values) if number % 50 == 0 else row(number, **values))

    assert stats.count(table(rows), target_ms=10).equals(_computed(frame(*rows, parts=parts)))


def test_no_rows_are_no_numbers(frame: Frame, spark: SparkSession) -> None:
    """An empty day is no failure."""
    nothing = frame(row(day=date(2026, 3, 2))).where("false")

    assert 0 == _computed(nothing).num_rows
