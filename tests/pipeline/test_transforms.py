"""Archive rows to numbers by Spark: which exchanges and routing keys are named, by hand, and the same numbers as without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files as files_of
from relay.pipeline.lake.splits import Parts
from relay.pipeline.metrics import aggregate, transforms
from relay.pipeline.metrics.top_keys import Limits
from tests.support.lake.rows import NOON, append, dead, row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
Computed = Callable[..., pa.Table]


@pytest.fixture
def computed(spark: SparkSession, lake: Lake) -> Computed:
    """Numbers of archive rows that lie in some files, of which each task reads about so many rows."""

    def compute(*rows: dict[str, Any], top_keys: int = 20, top_exchanges: int = 9, files: int = 1, rows_of_a_task: int = 3) -> pa.Table:
        for number in range(files):
            append(lake, *rows[number::files])
        days = {one["day"] for one in rows}
        chosen = [file for file in files_of(lake.opened("archive")) if file.day in days]
        parts = Parts.of(lake.place, "archive", chosen, rows=rows_of_a_task)
        return transforms.windows(spark, parts, target_ms=10, limits=Limits(top_exchanges, top_keys))

    return compute


def _named(spark: SparkSession, rows: list[dict[str, Any]], limits: Limits) -> set[tuple[str, str, str]]:
    counted = table(rows).select(["day", "exchange", "routing_key"]).append_column("messages", pa.array([1] * len(rows), pa.int64()))
    top = transforms.busiest(transforms.added_up(spark.createDataFrame(counted).repartition(3)), limits)
    return {(str(one.day), one.exchange, one.routing_key) for one in top.collect()}


def test_the_busiest_keys_of_a_day_and_exchange_are_named(spark: SparkSession) -> None:
    """Two for each exchange and day; of equal ones the first in byte order, where capitals come before and umlauts after."""
    keys = {"shop": ["b", "b", "b", "ä", "z", "z", "A"], "mail": ["", "x"]}
    today = [row(exchange=exchange, routing_key=key) for exchange, names in keys.items() for key in names]
    later = [row(at=NOON + timedelta(days=1), routing_key=key) for key in ("z", "ä", "B")]

    assert _named(spark, [*today, *later], Limits(9, 2)) == {
        ("2026-03-02", "shop", "b"), ("2026-03-02", "shop", "z"), ("2026-03-02", "mail", ""), ("2026-03-02", "mail", "x"),
        ("2026-03-03", "shop", "B"), ("2026-03-03", "shop", "z"),
    }  # fmt: skip


def test_the_busiest_exchanges_of_a_day_are_named(spark: SparkSession) -> None:
    """By the messages of all their keys; of equal ones the first in byte order, and each day by itself. No other pair comes back."""
    messages = {"many keys": 5, "one key": 4, "B": 4, "ä": 4}
    rows = [
        row(exchange=exchange, routing_key=f"id {number}" if exchange == "many keys" else "k")
        for exchange, count in messages.items()
        for number in range(count)
    ]
    rows += [row(exchange="ä", at=NOON + timedelta(days=1))]

    assert _named(spark, rows, Limits(2, 1)) == {
        ("2026-03-02", "many keys", "id 0"), ("2026-03-02", "B", "k"), ("2026-03-03", "ä", "order"),
    }  # fmt: skip


def test_exchanges_beyond_those_named_are_counted_together(computed: Computed) -> None:
    """In each window, whatever their keys are; what comes back has no more exchanges than asked for and one, and no message is lost."""
    rows = [row(number, exchange=f"tenant {number}", at=NOON + timedelta(minutes=number % 2 * 5)) for number in range(50)]
    rows += [row(exchange=exchange, routing_key=key) for exchange in ("shop", "mail") for key in "aab"]
    numbers = computed(*rows, dead(99, "nack", exchange="tenant 99"), top_keys=1, top_exchanges=2, files=3, rows_of_a_task=20).to_pylist()

    found = [(one["start"], one["exchange"], one["routing_key"], one["published"], one["failed"]) for one in numbers]
    assert [
        (NOON, "*other*", "*other*", 25, 1), (NOON, "mail", "*other*", 1, 0), (NOON, "mail", "a", 2, 0),
        (NOON, "shop", "*other*", 1, 0), (NOON, "shop", "a", 2, 0), (NOON + timedelta(minutes=5), "*other*", "*other*", 25, 0),
    ] == found  # fmt: skip
    assert '{"nack": 1}' == numbers[0]["codes"]


def test_keys_beyond_those_named_are_counted_together(computed: Computed) -> None:
    """In each window, with their latencies and codes; what is named stays by itself, and none is lost."""
    rows = [row(number, routing_key=f"id {number}", at=NOON + timedelta(minutes=number % 2 * 5)) for number in range(6)]
    rows += [row(routing_key="order"), row(routing_key="order"), dead(9, "nack", routing_key="id 9")]
    numbers = computed(*rows, top_keys=1, files=2).to_pylist()

    assert [(NOON, "*other*", 3, 1), (NOON, "order", 2, 0), (NOON + timedelta(minutes=5), "*other*", 3, 0)] == [
        (one["start"], one["routing_key"], one["published"], one["failed"]) for one in numbers
    ]
    assert ('{"nack": 1}', 4) == (numbers[0]["codes"], sum(numbers[0]["wait"]))


def test_what_a_day_names_is_named_for_its_exchange(computed: Computed) -> None:
    """A key that one exchange is named by counts as others in the next; a key that is called like the others counts with them."""
    rows = [row(number, exchange=exchange, routing_key=key) for number, (exchange, key) in enumerate(zip("aaabbb", "aabbba", strict=True))]
    rows += [row(number, exchange="c", routing_key=key) for number, key in enumerate(["*other*", "*other*", "x"], 6)]

    found = [(one["exchange"], one["routing_key"], one["published"]) for one in computed(*rows, top_keys=1).to_pylist()]
    assert [("a", "*other*", 1), ("a", "a", 2), ("b", "*other*", 1), ("b", "b", 2), ("c", "*other*", 3)] == found


def test_other_days_rename_nothing(computed: Computed) -> None:
    """A key that is busy tomorrow does not take a name of today's."""
    today = [row(1, routing_key="a"), row(2, routing_key="a"), row(3, routing_key="b")]
    tomorrow = [row(number, routing_key="b", at=NOON + timedelta(days=1)) for number in range(4, 9)]

    both = computed(*today, *tomorrow, top_keys=1, rows_of_a_task=100).to_pylist()
    assert [(NOON, "*other*", 1), (NOON, "a", 2), (NOON + timedelta(days=1), "b", 5)] == [
        (one["start"], one["routing_key"], one["published"]) for one in both
    ]


@pytest.mark.parametrize(("files", "rows_of_a_task"), [(1, 10_000), (1, 100), (7, 50), (7, 400)])
def test_spark_counts_what_is_counted_without_it(
    computed: Computed, monkeypatch: pytest.MonkeyPatch, files: int, rows_of_a_task: int
) -> None:
    """A thousand rows in any number of files and tasks give the numbers of all rows at once, though tasks add up in between."""
    monkeypatch.setattr(aggregate, "_HELD", 5)
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

    assert aggregate.count(table(rows), target_ms=10).equals(computed(*rows, files=files, rows_of_a_task=rows_of_a_task))
