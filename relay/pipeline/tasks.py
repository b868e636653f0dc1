"""Work by number in Spark's tasks, whose errors arrive at the driver as they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.errors import LakeError, PipelineError, UnreachableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Read = Callable[[int], Iterator[pa.RecordBatch]]
_MARK = re.compile(r"\[relay (\w+)\] (.*?) \[end\]", re.DOTALL)
_KINDS = {kind.__name__: kind for kind in (PipelineError, UnreachableError, LakeError)}


def by_number(spark: SparkSession, count: int, read: Read, schema: StructType | str) -> DataFrame:
    """What `read`, which travels to the tasks, gives for each number below `count`, in a task each; see `failure` for its errors."""
    return spark.range(0, count, 1, max(1, count)).mapInArrow(in_task(read), schema)


def in_task(read: Read) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over the numbers."""

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            try:
                yield from read(number)
            except PipelineError as error:
                # A form that survives Spark's own, and no cause whose text could hold a row or a secret.
                raise RuntimeError(f"[relay {type(error).__name__}] {error} [end]") from None

    return run


def failure(error: Exception) -> PipelineError | None:
    """The error of a task that Spark has wrapped into its own; None if it is Spark's."""
    if (found := _MARK.search(str(error))) is None:
        return None
    return _KINDS.get(found[1], PipelineError)(found[2])
