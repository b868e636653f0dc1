"""Distributes a batch over Spark's tasks and collects the list of files that they wrote; no row passes through the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.pipeline.lake.data_files import delete_written
from relay.pipeline.lake.parquet_writer import DataFile
from relay.pipeline.lake.range_writer import RESULT_DDL, Reading, task
from relay.pipeline.spark.tasks import collected

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(frozen=True)
class CopiedRange:
    """Uncommitted files in the lake's folder. The lake already had `known` rows of the batch; `differing` of them are different there."""

    files: tuple[DataFile, ...]
    known: int
    differing: int

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)


def copy(spark: SparkSession, reading: Reading, most: int) -> CopiedRange:
    """Copy every share, in at most `most` tasks at a time; after a failure the new files are deleted.

    Raises:
        PipelineError: a task failed (the text is the task's error), or Spark failed (the text is the first line of Spark's error).
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    try:
        rows = collected(spark, len(reading.shares), task(reading), RESULT_DDL, most=most)
    except BaseException:
        delete_written(reading.place, reading.table, reading.name)
        raise
    files = tuple(_file(row) for row in rows if row.path is not None)
    return CopiedRange(files, sum(row.known or 0 for row in rows), sum(row.differing or 0 for row in rows))


def slots(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return max(1, spark.sparkContext.defaultParallelism)


def _file(row: Row) -> DataFile:
    return DataFile(row.path, row.day, row.size, row.rows, row.stats)
