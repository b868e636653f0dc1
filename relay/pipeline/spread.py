"""Spreads the cuts of a batch over Spark's tasks and brings back what they wrote; no row passes the driver."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.errors import PipelineError
from relay.pipeline.lake_files import DataFile, delete_written
from relay.pipeline.source import RESULT_DDL, Reading, task
from relay.pipeline.tasks import by_number, failure

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(frozen=True)
class Written:
    """Files that stand in the lake's folder uncommitted, and how many rows of the batch the lake had already."""

    files: tuple[DataFile, ...]
    known: int
    differing: int

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(file.rows for file in self.files)


def copy(spark: SparkSession, reading: Reading) -> Written:
    """Copy every cut, each in a task; after a failure none of its files is left.

    Raises:
        PipelineError: with the sentence of the task that failed, or Spark's first line.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    try:
        rows = by_number(spark, len(reading.cuts), task(reading), RESULT_DDL).collect()
    except BaseException as error:
        if not isinstance(error, Exception):
            _cancel(spark)
        delete_written(reading.place, reading.table, reading.name)
        if not isinstance(error, Exception):
            raise
        raise failure(error) or _of_spark(error) from error
    files = tuple(_file(row) for row in rows if row.path is not None)
    return Written(files, sum(row.known or 0 for row in rows), sum(row.differing or 0 for row in rows))


def slots(spark: SparkSession) -> int:
    """Tasks that run at a time."""
    return max(1, spark.sparkContext.defaultParallelism)


def _cancel(spark: SparkSession) -> None:
    """End what an interrupt has left running, else its tasks would go on to write."""
    with suppress(Exception):
        spark.sparkContext.cancelAllJobs()


def _file(row: Row) -> DataFile:
    return DataFile(row.path, row.day, row.size, row.rows, row.stats)


def _of_spark(error: Exception) -> PipelineError:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    return PipelineError(f"Spark could not run the export: see its logs and run it again ({line}).")
