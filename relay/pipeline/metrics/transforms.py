"""Metrics in Spark: which routing keys a day names, and archive rows counted into windows of 5 minutes.

Tasks read the files by Arrow and hand over counts: to hand rows from the JVM to Python takes longer than to read and count them. Routing
keys may be as many as rows, so Spark adds those up; the numbers of windows are few, and travel as one value in Arrow's form, so that the
JVM need not look at a hundred counts of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.pipeline.lake.splits import Parts
from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.metrics.top_keys import NamedKeys, Pair, fill
from relay.pipeline.source.columns import DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAIR = ("exchange", "routing_key")
_COUNTED_DDL = "day date, exchange string, routing_key string, messages bigint"
_PACKED_DDL = "numbers binary"


def windows(
    spark: SparkSession, parts: Parts, *, target_ms: int, top_keys: int, named: Mapping[date, Collection[Pair]] | None = None
) -> pa.Table:
    """Archive rows of days → numbers by window, exchange and named routing key, as `stats.merge` orders them; `named` has keys to keep."""
    counted = parts.dataframe(spark, _Keys(parts).count, _COUNTED_DDL)
    names = named_keys(top_routing_keys(counted, top_keys=top_keys), named or {}, top_keys)
    packed = parts.dataframe(spark, _Windows(parts, names, target_ms).count, _PACKED_DDL).toArrow()
    return stats.add_up(pa.ipc.open_stream(one.as_buffer()).read_all() for one in packed["numbers"])


def top_routing_keys(counted: DataFrame, *, top_keys: int) -> DataFrame:
    """(day, exchange, routing_key, messages), the same ones several times → those with the most messages of each day and exchange."""
    from pyspark.sql import Window  # noqa: PLC0415 - the commands that need no JVM do not load it
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    summed = counted.groupBy("day", *_PAIR).agg(f.sum("messages").alias("messages"))
    place = f.row_number().over(Window.partitionBy("day", "exchange").orderBy(f.desc("messages"), f.asc("routing_key")))
    return summed.withColumn("place", place).where(f.col("place") <= top_keys).select("day", "place", *_PAIR)


def named_keys(top: DataFrame, named: Mapping[date, Collection[Pair]], top_keys: int) -> dict[date, NamedKeys]:
    """The keys that each day names: those that it names already, and the busiest out of what `top_routing_keys` gives."""
    busiest: defaultdict[date, list[Pair]] = defaultdict(list)
    for day, _, exchange, key in sorted(top.collect()):
        busiest[day].append((exchange, key))
    return {day: fill(named.get(day, ()), pairs, top_keys) for day, pairs in busiest.items()}


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
    """Counts windows, in a task, which holds their numbers and not its rows."""

    parts: Parts
    names: Mapping[date, NamedKeys]
    target_ms: int

    def count(self, task: int) -> Iterator[pa.RecordBatch]:
        rows = self.parts.batches(task, stats.ARCHIVE_COLUMNS)
        yield _packed(stats.add_up(stats.count(self.names[day].of_rows(batch), target_ms=self.target_ms) for day, batch in rows))


def _packed(numbers: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbers.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(numbers)
    return pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["numbers"])
