"""Metrics in Spark: chooses the exchanges and routing keys that a day names, and counts archive rows into windows of 5 minutes.

Tasks read the files by Arrow and return counts, because passing rows from the JVM to Python takes longer than reading and counting them.
There may be as many exchanges and routing keys as rows. Spark therefore adds up their counts, and the driver gets only the busiest. The
numbers of windows are few. A task returns them as one value in Arrow's form, so the JVM need not read a hundred counts of each window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.pipeline.lake.splits import Parts
from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.metrics.top_keys import Limits, Names, Pair, Renaming, fill
from relay.pipeline.source.columns import DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAIR = ("exchange", "routing_key")
_COUNTED_DDL = "day date, exchange string, routing_key string, messages bigint"
_PACKED_DDL = "numbers binary"


def windows(spark: SparkSession, parts: Parts, *, target_ms: int, limits: Limits, named: Mapping[date, Names] | None = None) -> pa.Table:
    """Archive rows of days → numbers by window, named exchange and named routing key, in the order of `stats.merge`.

    `named` has the names that each day keeps from earlier runs.
    """
    names = _chosen(parts.dataframe(spark, _Keys(parts).count, _COUNTED_DDL), limits, named or {})
    packed = parts.dataframe(spark, _Windows(parts, names, target_ms).count, _PACKED_DDL).toArrow()
    return stats.add_up(pa.ipc.open_stream(one.as_buffer()).read_all() for one in packed["numbers"])


def _chosen(counted: DataFrame, limits: Limits, named: Mapping[date, Names]) -> dict[date, Names]:
    """The names of each day: its existing names, and the busiest of the others."""
    summed = added_up(counted).persist()  # used twice, and each file should be read once
    try:
        rows = sorted(busiest(summed, limits).collect())
    finally:
        summed.unpersist()
    pairs: defaultdict[date, list[Pair]] = defaultdict(list)
    for day, _, _, exchange, key in rows:
        pairs[day].append((exchange, key))
    return {day: fill(named.get(day, Names()), found, limits) for day, found in pairs.items()}


def added_up(counted: DataFrame) -> DataFrame:
    """Rows (day, exchange, routing_key, messages) with repeated names → one row for each day and pair, with the sum of the messages."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the commands that need no JVM do not load it

    return counted.groupBy("day", *_PAIR).agg(f.sum("messages").alias("messages"))


def busiest(summed: DataFrame, limits: Limits) -> DataFrame:
    """Rows of `added_up` → the busiest keys of the busiest exchanges, each with the ranks of its exchange and its key within the day."""
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    def first(found: DataFrame, place: str, within: Sequence[str], name: str, limit: int) -> DataFrame:
        number = f.row_number().over(Window.partitionBy(*within).orderBy(f.desc("messages"), f.asc(name)))
        return found.withColumn(place, number).where(f.col(place) <= limit)

    totals = summed.groupBy("day", "exchange").agg(f.sum("messages").alias("messages"))
    exchanges = first(totals, "exchange_place", ["day"], "exchange", limits.exchanges).drop("messages")
    keys = first(summed, "key_place", ["day", "exchange"], "routing_key", limits.keys)
    return keys.join(f.broadcast(exchanges), ["day", "exchange"]).select("day", "exchange_place", "key_place", *_PAIR)


@dataclass(frozen=True)
class _Keys:
    """Counts the messages of each routing key, in a task."""

    parts: Parts

    def count(self, task: int) -> Iterator[pa.RecordBatch]:
        for day, batch in self.parts.batches(task, _PAIR):
            found = pa.table(batch).group_by(list(_PAIR)).aggregate([([], "count_all")]).combine_chunks()
            days = pa.repeat(pa.scalar(day, DAY.type), found.num_rows)
            counted = pa.table([days, *found.select([*_PAIR, "count_all"]).columns], ["day", *_PAIR, "messages"])
            yield from counted.to_batches()


@dataclass(frozen=True)
class _Windows:
    """Counts windows in a task; the task keeps the numbers in memory, but not the rows."""

    parts: Parts
    names: Mapping[date, Names]
    target_ms: int

    def count(self, task: int) -> Iterator[pa.RecordBatch]:
        renamings = {day: Renaming(names) for day, names in self.names.items()}
        rows = self.parts.batches(task, stats.ARCHIVE_COLUMNS)
        yield _packed(stats.add_up(stats.count(renamings[day].of_rows(batch), target_ms=self.target_ms) for day, batch in rows))


def _packed(numbers: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbers.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(numbers)
    return pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["numbers"])
