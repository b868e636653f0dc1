"""Divides the lake's archive files among Spark's tasks, with about equally many rows for each task; the tasks read columns with Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import opened_file
from relay.pipeline.spark.tasks import Read, by_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 250_000
"""About how many rows a task reads; a row group is never divided."""
_ROWS_AT_ONCE = 131_072


class Part(NamedTuple):
    """One of `shares` shares of a file's row groups; `path` is relative to the table."""

    path: str
    day: date
    share: int = 0
    shares: int = 1


@dataclass(frozen=True)
class Parts:
    """What each task reads of a table's files. This small object is sent to Spark's tasks."""

    place: LakeLocation
    table: str
    tasks: tuple[tuple[Part, ...], ...]

    @classmethod
    def of(cls, place: LakeLocation, table: str, files: Iterable[LoggedFile], *, rows: int = ROWS) -> Self:
        """Divide files of days among tasks: a large file is cut, small ones share a task."""
        tasks: list[list[Part]] = []
        room = 0
        for day, path, count in sorted((file.day, file.path, file.rows) for file in files if file.day is not None):
            shares = max(1, -(-count // rows))
            for share in range(shares):
                if not tasks or room < count // shares:
                    tasks.append([])
                    room = rows
                tasks[-1].append(Part(path, day, share, shares))
                room -= count // shares
        return cls(place, table, tuple(map(tuple, tasks)))

    def batches(self, task: int, columns: Sequence[str], *, rows: int = _ROWS_AT_ONCE) -> Iterator[tuple[date, pa.RecordBatch]]:
        """The rows of one task, at most `rows` at a time, each batch with its day; raises the same errors as `opened_file`."""
        for part in self.tasks[task]:
            for batch in self._read(part, list(columns), rows):
                yield part.day, batch

    def dataframe(self, spark: SparkSession, read: Read, ddl: str) -> DataFrame:
        """The rows that `read` returns for each task's number, as a DataFrame; for the errors see `relay.pipeline.spark.tasks`."""
        return by_number(spark, len(self.tasks), read, ddl)

    def _read(self, part: Part, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        full = self.place.path(f"{self.place.table(self.table)}/{part.path}")
        with opened_file(self.place, full) as file:
            low, high = (file.metadata.num_row_groups * share // part.shares for share in (part.share, part.share + 1))
            if low < high:
                yield from file.batches(rows, groups=range(low, high), columns=columns)
