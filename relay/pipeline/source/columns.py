"""The archive's columns from PostgreSQL's catalog: the type of each in the lake, and the SQL expression that selects it. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
from psycopg import sql

from relay.errors import PipelineError

UNPRINTABLE = "content_unprintable"
"""The code of a content that PostgreSQL stores but cannot return, because its text exceeds a gigabyte; the lake has null instead."""
INSTANT = pa.timestamp("us", "UTC")
DAY = pa.field("day", pa.date32(), nullable=False)
"""The lake's partition: the UTC day of `archived_at`."""
TABLE = "archive"
"""The lake's table of the archive."""
FORMAT = "2"
"""Version of this layout, a property of the table. Since version 2 each export's commit carries an epoch; older versions write none."""
OLDER_FORMATS = ("1",)
"""Versions that the next export upgrades."""

_ARROW = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "timestamptz": INSTANT,
    "xid8": pa.int64(),
}
"""The lake's types for PostgreSQL's types. Values of other types are stored as the text that the server prints, so nothing is lost."""
_AS_IT_IS = frozenset(_ARROW) - {"xid8"} | {"text"}
_BOUNDED = {
    "timestamptz": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    "date": ("0001-01-01", "9999-12-31"),
    "xid8": ("0", str((1 << 63) - 2)),
}
"""The first and the last value that the lake can store, for types whose range is wider in PostgreSQL."""
CODES = {"timestamptz": "time_out_of_range", "date": "time_out_of_range", "xid8": "xid_out_of_range"}
"""The code of a row with a value outside these bounds; the row stays in PostgreSQL and is not exported."""
NOT_NULL = frozenset({"xid", "seq", "archived_at", "archived_xid"})
"""Columns that are never null: identity and cursors. In the lake all others are nullable, so a dropped NOT NULL changes nothing there."""


class ArchiveColumn(NamedTuple):
    """A column of the archive: its name, and its type's name in PostgreSQL's catalog.

    Rows that are older than a column with a constant default show this default, `older` (here in the form of checksums). No row stores the
    value, and the lake has null instead. Rows archived by transactions below `below` may be older than the column; see
    `relay.pipeline.lake.added_columns`.
    """

    name: str
    kind: str
    older: str | None = None
    below: int = 0

    @property
    def field(self) -> pa.Field:
        """The column's name and type in the lake."""
        return pa.field(self.name, _ARROW.get(self.kind, pa.string()), nullable=self.name not in NOT_NULL)

    @property
    def is_gained(self) -> bool:
        """Whether this lake may have rows that are older than the column."""
        return self.older is not None and self.below > 0

    @property
    def readable(self) -> sql.Composable:
        """SQL for the column's value, or null if PostgreSQL cannot print the value: reading it would fail the whole statement."""
        name = sql.Identifier(self.name)
        if self.name != "content":
            return name
        return sql.SQL("CASE WHEN error_code IS DISTINCT FROM {} THEN {} END").format(sql.Literal(UNPRINTABLE), name)

    @property
    def expression(self) -> sql.Composable:
        """The SQL expression that selects the column."""
        if self.kind in _AS_IT_IS:
            return sql.Identifier(self.name)
        cast = "({0})::text::bigint AS {1}" if self.kind == "xid8" else "({0})::text AS {1}"
        return sql.SQL(cast).format(self.readable, sql.Identifier(self.name))


def schema_of(columns: Iterable[ArchiveColumn]) -> pa.Schema:
    """The archive's schema in the lake, with the partition column last; columns that are added later come after the partition column."""
    return pa.schema([*(column.field for column in columns), DAY])


def check_names(columns: Iterable[ArchiveColumn], there: Iterable[str] = ()) -> None:
    """Check that the lake's table can have these columns next to its own: for the lake, names that differ only in case are equal.

    Raises:
        PipelineError: a column has the partition column's name, or differs from another column in case only.
    """
    known = {name.lower(): name for name in there}
    for name in (column.name for column in columns):
        if name.lower() == DAY.name:
            raise PipelineError(f"The archive has a column {name!r}, which is the name of the lake's own column {DAY.name}: {_RENAME}.")
        if (other := known.setdefault(name.lower(), name)) != name:
            raise PipelineError(
                f"The archive's columns {other!r} and {name!r} are one column to the lake, because only the case differs: {_RENAME}."
            )


_RENAME = "rename it with ALTER TABLE queue_message_archive RENAME COLUMN"


def without_day(schema: pa.Schema) -> pa.Schema:
    """The schema of a file: only the file's path has the partition column."""
    return pa.schema([field for field in schema if field.name != DAY.name])


def select_list(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """The SQL list that selects the columns."""
    return sql.SQL(", ").join(column.expression for column in columns)


def guarded_list(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """The same as `select_list`, but the statement fails at a row that no lake can store, and its error names the row."""
    guard = sql.SQL("CASE WHEN {fault} IS NULL THEN {seq} ELSE ({words} || xid || ',' || {seq})::bigint END AS {seq}")
    seq = guard.format(fault=fault(columns), words=sql.Literal(OUT_OF_BOUNDS), seq=sql.Identifier("seq"))
    return sql.SQL(", ").join(seq if column.name == "seq" else column.expression for column in columns)


OUT_OF_BOUNDS = "no lake can hold the archive's row (xid, seq) "
"""The text that PostgreSQL's error quotes for a row that no lake can store."""


def fault(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """SQL expression of the code that says why no lake can store a row; null for all other rows.

    ADBC would silently turn a time out of range into another date. A transaction id above 2^63 - 2 does not fit the lake's columns and a
    `RowRange`.
    """
    cases = [
        sql.SQL("WHEN {} THEN {}").format(_beyond(kind, names), sql.Literal(CODES[kind]))
        for kind in _BOUNDED
        if (names := [column.name for column in columns if column.kind == kind])
    ]
    return sql.SQL("CASE {} END").format(sql.SQL(" ").join(cases))


def _beyond(kind: str, names: Sequence[str]) -> sql.Composed:
    """SQL condition: a value of the row is out of bounds. The condition is never null, because `IS TRUE` treats null as false."""
    low, high = (sql.SQL("{}::{}").format(sql.Literal(bound), sql.SQL(kind)) for bound in _BOUNDED[kind])
    tests = [sql.SQL("{0} < {1} OR {0} > {2}").format(sql.Identifier(name), low, high) for name in names]
    return sql.SQL("({}) IS TRUE").format(sql.SQL(" OR ").join(tests))
