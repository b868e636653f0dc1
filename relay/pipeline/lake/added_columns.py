"""Columns that the archive has gained since rows were exported, and the value that PostgreSQL shows for each in those rows.

`ALTER TABLE … ADD COLUMN … DEFAULT` fills no row: PostgreSQL remembers the value, and shows it in older rows. In the lake these rows have
null. So that both still count as the same, the lake's table remembers the value too, and up to which transaction it had rows by then.
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
"""The value that older rows show, and the transaction below which all these rows are."""


def properties(columns: Iterable[ArchiveColumn], below: int = 0, known: Mapping[str, _Older] | None = None) -> dict[str, str]:
    """Table properties for columns that show a value in older rows, together with the known ones; empty if there is no such column."""
    told = {column.name: (column.older, below) for column in columns if column.older is not None}
    return {_PROPERTY: json.dumps({**told, **(known or {})})} if told else {}


def note(lake: Lake, table: str, columns: Iterable[ArchiveColumn]) -> None:
    """Let the table know of each such column that is new to it, before rows arrive that have a value of their own there.

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
        # Another export may have done it meanwhile.
        if not {column.name for column in new} <= _read(lake.opened(table)).keys():
            raise sentence(error, lake.place) from error


def compared(handle: DeltaTable, columns: Iterable[ArchiveColumn]) -> list[ArchiveColumn]:
    """The columns with what this table remembers of them, for comparing its rows with PostgreSQL's."""
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
    """The newest transaction of the table's rows, of which some may have come with another cluster's dump and have ids of the future."""
    return max((file.newest for file in files(handle) if file.newest is not None), default=-1)
