"""The rows of a range as the lake has them: row group by row group, a bounded number of bytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import OpenedFile, opened_file
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.partitions import PartitionRange

_ROWS, _EXPORTED = 8192, 32 << 20
"""How many rows are decoded together, and how many bytes an exported row group has at most; with one row it may have more."""
_FEW = 512
"""How many rows of a larger group are decoded together: there wide rows may be neighbours among many narrow ones."""
_BUFFER = 1 << 20
"""How many bytes are read at a time; without this, a whole column of a row group would be in memory."""
_DECIDING = ("result", "archived_at", "archived_xid", "seq")
"""Columns that say whether a row is in a range: small ones, so a group without such a row costs little."""


def batches(place: LakeLocation, one: PartitionRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The range's rows, with those of the named columns that the lake has; errors as `opened_file`."""
    root = place.path(place.table(TABLE))
    for path in one.files:
        with opened_file(place, f"{root}/{path}", buffer_size=_BUFFER) as file:
            yield from _of_file(file, one, names)


def _of_file(file: OpenedFile, one: PartitionRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for number in range(file.metadata.num_row_groups):
        if _may_hold(file.metadata.row_group(number), one) and _holds(file, number, one):
            for batch in _read(file, number, names):
                if (found := batch.filter(one.chosen(batch))).num_rows:
                    yield found


def _may_hold(group: pq.RowGroupMetaData, one: PartitionRange) -> bool:
    """Whether the group's statistics leave room for a row of the range."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "archived_xid" and column.is_stats_set and column.statistics.has_min_max:
            return bool(column.statistics.min < one.cut.high and column.statistics.max >= one.cut.low)
    return True


def _holds(file: OpenedFile, number: int, one: PartitionRange) -> bool:
    names = _DECIDING if one.cut.parts > 1 else _DECIDING[:-1]
    return any(one.chosen(batch).true_count for batch in _read(file, number, names, few=_ROWS))


def _read(file: OpenedFile, number: int, names: Sequence[str], few: int = _FEW) -> Iterator[pa.RecordBatch]:
    most = _ROWS if file.metadata.row_group(number).total_byte_size <= _EXPORTED else few
    yield from file.batches(most, groups=[number], columns=names)
