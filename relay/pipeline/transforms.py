"""Metrics as DataFrame → DataFrame: archive rows become the numbers of 5-minute windows. Nothing is read or written here.

**Which routing keys are named.** Keys may hold ids, so per exchange and UTC day only the `top_keys` with the most messages are named (of
equal ones those first in byte order); the others count as `*other*`. The choice is made from all messages of that day and from nothing
else: whatever order they were exported in, the numbers are the same, no other day's messages can rename a key, and a day's windows can be
added up key by key. A late message of the day itself can move the border; then every window of that day is computed with the new choice
and replaced together, so that no two choices stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.pipeline import stats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_SCHEMA = (
    "start timestamp, exchange string, routing_key string, published bigint, discarded bigint, rejected bigint, failed bigint, "
    "lock_expired bigint, attempts bigint, codes string, wait array<bigint>, publish array<bigint>, confirm array<bigint>, "
    "within_target bigint, target_ms bigint"
)
"""`stats.SCHEMA` in Spark's words."""

_HELD = 20_000
"""Numbers that a task holds before it adds up what is of the same window and key."""

Batches = Iterator[pa.RecordBatch]


def windows(rows: DataFrame, *, target_ms: int, top_keys: int) -> DataFrame:
    """Archive rows of whole days (with their column `day`) → numbers by window of 5 minutes, exchange and named routing key."""
    named = with_named_keys(rows, top_keys=top_keys).select(*stats.ARCHIVE_COLUMNS)
    counted = named.mapInArrow(_counting(target_ms), SPARK_SCHEMA)
    return counted.repartition("start", "exchange").mapInArrow(_merging, SPARK_SCHEMA)


def with_named_keys(rows: DataFrame, *, top_keys: int) -> DataFrame:
    """Put `*other*` for the routing keys that their day does not name for their exchange."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the commands that need no JVM do not load it

    names = top_routing_keys(rows, top_keys=top_keys).withColumn("is_named", f.expr("true"))
    found = rows.join(f.broadcast(names), ["day", "exchange", "routing_key"], "left")
    key = f.when(f.col("is_named"), f.col("routing_key")).otherwise(f.lit(stats.OTHER))
    return found.withColumn("routing_key", key).drop("is_named")


def top_routing_keys(rows: DataFrame, *, top_keys: int) -> DataFrame:
    """Return (day, exchange, routing_key) of the keys to name: those with the most rows of each day and exchange."""
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as f  # noqa: PLC0415

    counted = rows.groupBy("day", "exchange", "routing_key").agg(f.count("*").alias("messages"))
    place = f.row_number().over(Window.partitionBy("day", "exchange").orderBy(f.desc("messages"), f.asc("routing_key")))
    return counted.withColumn("place", place).where(f.col("place") <= top_keys).select("day", "exchange", "routing_key")


def _counting(target_ms: int) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def count(batches: Iterable[pa.RecordBatch]) -> Batches:
        return _added_up(stats.count(batch, target_ms=target_ms) for batch in batches)

    return count


def _merging(batches: Iterable[pa.RecordBatch]) -> Batches:
    return _added_up(pa.table(batch) for batch in batches)


def _added_up(parts: Iterable[pa.Table]) -> Batches:
    """Merge numbers as they come, so that a task holds those of its windows and not those of its rows."""
    held = [stats.empty()]
    for part in parts:
        held.append(part.select(stats.SCHEMA.names).cast(stats.SCHEMA))
        if sum(one.num_rows for one in held[1:]) > max(_HELD, held[0].num_rows):
            held = [stats.merge(pa.concat_tables(held))]
    yield from stats.merge(pa.concat_tables(held)).to_batches()
