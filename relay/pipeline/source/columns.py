"""The archive's columns as the catalog has them: what each becomes in the lake, and how the server is asked for it; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
from psycopg import sql

from relay.errors import PipelineError

UNPRINTABLE = "content_unprintable"
"""The code of a content of more than a gigabyte as text, which PostgreSQL stores and cannot hand out; the lake has null in its place."""
INSTANT = pa.timestamp("us", "UTC")
DAY = pa.field("day", pa.date32(), nullable=False)
"""The lake's partition: the UTC day of `archived_at`."""
TABLE = "archive"
"""The lake's table of the archive."""
FORMAT = "2"
"""Version of this layout, a property of the table: since 2 each commit of an export carries an epoch, and one without would undo that."""
OLDER_FORMATS = ("1",)
"""Versions that the next export takes over."""

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
"""What a type of PostgreSQL is in the lake; every other one travels as the text that the server prints, which loses nothing."""
_AS_IT_IS = frozenset(_ARROW) - {"xid8"} | {"text"}
_BOUNDED = {
    "timestamptz": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    "date": ("0001-01-01", "9999-12-31"),
    "xid8": ("0", str((1 << 63) - 2)),
}
"""First and last value of the types that have values which the lake's types have not."""
CODES = {"timestamptz": "time_out_of_range", "date": "time_out_of_range", "xid8": "xid_out_of_range"}
"""The code of a row with such a value, which stays in PostgreSQL alone."""
NOT_NULL = frozenset({"xid", "seq", "archived_at", "archived_xid"})
"""Identity and cursors. The others may be null in the lake, so that a column that loses its NOT NULL changes nothing there."""


class ArchiveColumn(NamedTuple):
    """A column of the archive: its name, and its type's name in PostgreSQL's catalog.

    `older` is what rows show that are older than a column with a constant default, as checksums write it: no row holds it, and in the lake
    they have null. Rows archived by transactions below `below` may be such rows; see `relay.pipeline.lake.added_columns`.
    """

    name: str
    kind: str
    older: str | None = None
    below: int = 0

    @property
    def field(self) -> pa.Field:
        """The column in the lake."""
        return pa.field(self.name, _ARROW.get(self.kind, pa.string()), nullable=self.name not in NOT_NULL)

    @property
    def is_gained(self) -> bool:
        """Whether rows of this lake may be older than it."""
        return self.older is not None and self.below > 0

    @property
    def readable(self) -> sql.Composable:
        """The column's value, null where PostgreSQL has no text of it: a statement that meets such a value fails for all rows."""
        name = sql.Identifier(self.name)
        if self.name != "content":
            return name
        return sql.SQL("CASE WHEN error_code IS DISTINCT FROM {} THEN {} END").format(sql.Literal(UNPRINTABLE), name)

    @property
    def expression(self) -> sql.Composable:
        """What the server is asked for."""
        if self.kind in _AS_IT_IS:
            return sql.Identifier(self.name)
        cast = "({0})::text::bigint AS {1}" if self.kind == "xid8" else "({0})::text AS {1}"
        return sql.SQL(cast).format(self.readable, sql.Identifier(self.name))


def schema_of(columns: Iterable[ArchiveColumn]) -> pa.Schema:
    """The archive's schema in the lake, with the partition column as its last but for columns that come later."""
    return pa.schema([*(column.field for column in columns), DAY])


def check_names(columns: Iterable[ArchiveColumn], there: Iterable[str] = ()) -> None:
    """See that the lake's table, which may have columns already, can have all of these: it takes letters of both cases for the same.

    Raises:
        PipelineError: a column is called as the partition column is, or as another but for the case.
    """
    known = {name.lower(): name for name in there}
    for name in (column.name for column in columns):
        if name.lower() == DAY.name:
            raise PipelineError(f"The archive has a column {name!r}, and the lake's own is called {DAY.name}: {_RENAME}.")
        if (other := known.setdefault(name.lower(), name)) != name:
            raise PipelineError(f"The archive's columns {other!r} and {name!r} are one to the lake, as only the case differs: {_RENAME}.")


_RENAME = "rename it with ALTER TABLE queue_message_archive RENAME COLUMN"


def without_day(schema: pa.Schema) -> pa.Schema:
    """The schema of a file: the partition column is in its path alone."""
    return pa.schema([field for field in schema if field.name != DAY.name])


def select_list(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """The columns for the server."""
    return sql.SQL(", ").join(column.expression for column in columns)


def guarded_list(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """As `select_list`, but a row that no lake can hold makes the statement fail with its name."""
    guard = sql.SQL("CASE WHEN {fault} IS NULL THEN {seq} ELSE ({words} || xid || ',' || {seq})::bigint END AS {seq}")
    seq = guard.format(fault=fault(columns), words=sql.Literal(OUT_OF_BOUNDS), seq=sql.Identifier("seq"))
    return sql.SQL(", ").join(seq if column.name == "seq" else column.expression for column in columns)


OUT_OF_BOUNDS = "no lake can hold the archive's row (xid, seq) "
"""What PostgreSQL quotes in its error about such a row."""


def fault(columns: Sequence[ArchiveColumn]) -> sql.Composed:
    """SQL expression of the code that says why no lake can hold a row; null for a row that one can hold.

    ADBC would silently turn such a time into another date. Only transaction ids up to 2^63 - 2 fit the lake's columns and a cut.
    """
    cases = [
        sql.SQL("WHEN {} THEN {}").format(_beyond(kind, names), sql.Literal(CODES[kind]))
        for kind in _BOUNDED
        if (names := [column.name for column in columns if column.kind == kind])
    ]
    return sql.SQL("CASE {} END").format(sql.SQL(" ").join(cases))


def _beyond(kind: str, names: Sequence[str]) -> sql.Composed:
    """Whether a value of a row is out of bounds; never null, for a comparison with null is not TRUE."""
    low, high = (sql.SQL("{}::{}").format(sql.Literal(bound), sql.SQL(kind)) for bound in _BOUNDED[kind])
    tests = [sql.SQL("{0} < {1} OR {0} > {2}").format(sql.Identifier(name), low, high) for name in names]
    return sql.SQL("({}) IS TRUE").format(sql.SQL(" OR ").join(tests))
