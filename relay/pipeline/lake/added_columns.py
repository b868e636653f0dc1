"""Columns that were added to the archive after an export, and the values that PostgreSQL shows for them in older rows.

`ALTER TABLE … ADD COLUMN … DEFAULT` fills no row: PostgreSQL stores the default once, and shows it in older rows. In the lake these rows
have null. The lake's table therefore records the default too, with the transaction up to which it had rows at that time. A comparison then
counts the null and the default as equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.errors import sentence
from relay.pipeline.source.columns import ArchiveColumn
from relay.pipeline.source.ranges import BEYOND

_PROPERTY = "outbox_relay.gained"
_Older = tuple[str, int]
"""The value that PostgreSQL shows in older rows, and a transaction id above all of these rows."""


def properties(columns: Iterable[ArchiveColumn], below: int = 0, known: Mapping[str, _Older] | None = None) -> dict[str, str]:
    """Table properties for columns with a value in older rows, together with the known columns; empty if there is no such column."""
    told = {column.name: (column.older, below) for column in columns if column.older is not None}
    return {_PROPERTY: json.dumps({**told, **(known or {})})} if told else {}


def note(lake: Lake, table: str, columns: Iterable[ArchiveColumn]) -> None:
    """Record each such new column in the table's properties, before rows with a value of their own in it are exported.

    Raises:
        LakeError, UnreachableError: the lake cannot be written.
    """
    handle = lake.opened(table)
    known = _read(handle)
    new = [column for column in columns if column.older is not None and column.name not in known]
    if not new:
        return
    try:
        handle.alter.set_table_properties(properties(new, _newest(handle) + 1, known), raise_if_not_exists=False)
    except (DeltaError, OSError) as error:
        # Another export may have recorded the columns meanwhile.
        if not {column.name for column in new} <= _read(lake.opened(table)).keys():
            raise sentence(error, lake.place) from error


def compared(handle: DeltaTable, columns: Iterable[ArchiveColumn]) -> list[ArchiveColumn]:
    """The columns with the values that this table records for older rows; used to compare its rows with PostgreSQL's."""
    known, there = _read(handle), set(schema_of(handle).names)

    def of(column: ArchiveColumn) -> ArchiveColumn:
        if column.name not in there:
            return column._replace(below=BEYOND)
        older, below = known.get(column.name, (None, 0))
        return column._replace(older=older, below=below)

    return [of(column) for column in columns]


def _read(handle: DeltaTable) -> dict[str, _Older]:
    found = json.loads(handle.metadata().configuration.get(_PROPERTY) or "{}")
    return {name: (older, below) for name, (older, below) in found.items()}


def _newest(handle: DeltaTable) -> int:
    """The newest transaction of the table's rows. Rows of another cluster's dump may have transaction ids that lie in the future."""
    return max((file.newest for file in files(handle) if file.newest is not None), default=-1)
