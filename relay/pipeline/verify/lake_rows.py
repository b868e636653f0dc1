"""Reads the lake's rows of a range, row group by row group, a bounded number of bytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import OpenedFile, opened_file
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.partitions import PartitionRange

_ROWS, _EXPORTED = 8192, 32 << 20
"""How many rows are decoded together, and the most bytes of an exported row group with more than one row."""
_FEW = 512
"""How many rows of a larger row group are decoded together: in such a group, several wide rows may be neighbours."""
_BUFFER = 1 << 20
"""How many bytes are read at a time; without this bound, a whole column of a row group would be in memory."""
_DECIDING = ("result", "archived_at", "archived_xid", "seq")
"""Columns that decide whether a row is in a range. They are small, so a group without such a row is inexpensive."""


def batches(place: LakeLocation, one: PartitionRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The range's rows, with the named columns as far as the lake has them; raises the same errors as `opened_file`."""
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
    """Whether, by its statistics, the group may have a row of the range."""
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
