"""Writes Parquet files of the lake by day, and describes each for the table's log."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyarrow import fs

from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.source.columns import DAY, without_day

_BIG = frozenset({"content", "body", "options"})
"""Columns whose values may have megabytes: files have no dictionary and no least value of such a column.

With a dictionary, the size in the footer would say nothing about the rows' size in memory, because thousands of rows may share one value.
"""
FULL = 256 << 20
"""Bytes of a full file. Spark's tasks and object stores read files of 128 to 512 MB well."""
_UNIQUE = frozenset({"id", "xid", "seq", "archived_xid"})


@dataclass(frozen=True)
class DataFile:
    """A file in the lake's folder; no reader sees the file before it is committed. `path` is relative to the table."""

    path: str
    day: date | None
    size: int
    rows: int
    stats: str

    def action(self, *, data_change: bool = True) -> AddAction:
        """The file's entry in the table's log. Without `data_change`, other files of the table had its rows before."""
        days = {} if self.day is None else {DAY.name: self.day.isoformat()}
        return AddAction(self.path, self.size, days, int(time.time() * 1000), data_change=data_change, stats=self.stats)


class DayWriter:
    """Writes batches of one table's schema to new files. If the table is partitioned by the column `day`, each file has rows of one day.

    Args:
        place: root of the lake.
        table: the table's name.
        schema: the table's schema, to which each batch is cast.
        name: the beginning of the files' names, unique for each writer.
        full: a file with this many bytes is finished, and a new file is begun for the day's next rows; None writes one file a day.
    """

    def __init__(self, place: LakeLocation, table: str, schema: pa.Schema, name: str, *, full: int | None = None) -> None:
        self._place = place
        self._root = place.path(place.table(table))
        self._filesystem = place.filesystem()
        self._schema = schema
        self._name = name
        self._full = full
        self._by_day = DAY.name in schema.names
        self._files: list[_File] = []
        self._open: dict[date | None, _File] = {}
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; raises LakeError or UnreachableError if the lake refuses it."""
        with sentences(self._place):
            days: list[date | None] = pc.unique(batch.column(DAY.name)).to_pylist() if self._by_day else [None]
            for day in days:
                part = batch if len(days) == 1 else batch.filter(pc.equal(batch.column(DAY.name), day))
                file = self._file(day)
                file.write(part)
                if self._full is not None and file.bytes >= self._full:
                    self._finished.append(self._open.pop(day).close())

    def close(self) -> list[DataFile]:
        """Finish every file and describe it; raises the same errors as `write`."""
        with sentences(self._place):
            return [*self._finished, *(file.close() for file in self._open.values())]

    def abort(self) -> None:
        """Delete every file. A file that cannot be deleted belongs to no table, and a vacuum deletes it later."""
        for file in self._files:
            file.abort()

    def _file(self, day: date | None) -> _File:
        if day not in self._open:
            folder = "" if day is None else f"{DAY.name}={day.isoformat()}/"
            path = f"{folder}{self._name}-{len(self._files)}.parquet"
            self._open[day] = _File(self._filesystem, self._root, path, day, without_day(self._schema))
            self._files.append(self._open[day])
        return self._open[day]


class _File:
    """One Parquet file that is being written, and the statistics of its rows."""

    def __init__(self, filesystem: fs.FileSystem, root: str, path: str, day: date | None, schema: pa.Schema) -> None:
        self._filesystem, self._full, self._path, self._day, self._schema = filesystem, f"{root}/{path}", path, day, schema
        if isinstance(filesystem, fs.LocalFileSystem):  # an object store has no folders, and may not allow a lookup of its bucket
            filesystem.create_dir(self._full.rpartition("/")[0], recursive=True)
        small = [field.name for field in schema if field.name not in _BIG]
        self._sink = filesystem.open_output_stream(self._full)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in small if name not in _UNIQUE],
            write_statistics=small,
            write_page_checksum=True,
        )
        self._rows = 0
        self._statistics = Statistics()

    def write(self, batch: pa.RecordBatch) -> None:
        batch = batch.select(self._schema.names).cast(self._schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        self._statistics.add(batch)

    @property
    def bytes(self) -> int:
        """How many bytes were written so far."""
        return int(self._sink.tell())

    def close(self) -> DataFile:
        self._writer.close()
        self._sink.close()
        size = self._filesystem.get_file_info(self._full).size
        return DataFile(self._path, self._day, size, self._rows, self._statistics.as_json())

    def abort(self) -> None:
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            self._filesystem.delete_file(self._full)


class Statistics:
    """Least and greatest value of the columns by which readers skip files: whole numbers, times and dates."""

    def __init__(self) -> None:
        self._rows = 0
        self._ranges: dict[str, tuple[Any, Any]] = {}
        self._nulls: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch to the statistics."""
        self._rows += batch.num_rows
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
                self._nulls[field.name] = self._nulls.get(field.name, 0) + column.null_count
                least_and_greatest = pc.min_max(column).as_py()
                self._widen(field.name, least_and_greatest["min"], least_and_greatest["max"])

    def as_json(self) -> str:
        """The statistics in the form of Delta's log."""
        least = {name: _plain(low) for name, (low, _) in self._ranges.items()}
        greatest = {name: _plain(high) for name, (_, high) in self._ranges.items()}
        return json.dumps({"numRecords": self._rows, "minValues": least, "maxValues": greatest, "nullCount": self._nulls})

    def _widen(self, name: str, low: Any, high: Any) -> None:
        if low is not None:
            known = self._ranges.get(name, (low, high))
            self._ranges[name] = (min(low, known[0]), max(high, known[1]))


def statistics_properties(schema: pa.Schema) -> dict[str, str]:
    """Table properties that name the columns whose least and greatest values readers may use: whole numbers and times that are never null.

    If a file has no statistics of a column, the library reports the column to Arrow as null in all rows. A filter on the column then finds
    no row.
    """
    sure = (field for field in schema if not field.nullable and field.name != DAY.name)
    names = [field.name for field in sure if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)]
    return {"delta.dataSkippingStatsColumns": ",".join(names)} if names else {"delta.dataSkippingNumIndexedCols": "0"}


def _plain(value: Any) -> Any:
    """A value in Delta's notation; times in UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
