"""Another outbox's table as PostgreSQL's catalog describes it, and SQL that depends on the table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from psycopg import errors, sql
from psycopg.rows import DictRow

from relay.adopt.layout import KINDS, AdoptError, Layout, MissingError
from relay.postgres.operator_session import OperatorSession
from relay.queries.statements import Statements


class SourceTable(NamedTuple):
    """A table of another outbox."""

    schema: str
    name: str
    columns: Mapping[str, str]
    """Column → type."""
    in_order: Sequence[str]
    not_null: Sequence[str]
    identities: Mapping[str, str]
    """Identity column → sequence."""
    defaults: Mapping[str, str]
    """Column → default expression."""
    key: Sequence[str]

    @property
    def written(self) -> str:
        """The table's name for SQL."""
        return sql.Identifier(self.schema, self.name).as_string(None)


_MOST_PARTS = 3
"""The most parts of a table's name: database, schema and table."""


def ask(console: OperatorSession, statement: str, **values: object) -> list[DictRow]:
    """The rows of `relay/queries/<statement>.sql`.

    Call this function within a transaction of the console, which translates errors.
    """
    return console.connection.execute(Statements(console.schema)[statement], values).fetchall()


def find(console: OperatorSession, name: str) -> SourceTable:
    """The table of that name, which this login must own. Call this function within a transaction of the console.

    Raises:
        MissingError: the table does not exist.
        AdoptError: the name is that of another object, or the table has no primary key or belongs to another role.
    """
    ask(console, "restore_path")
    with a_name(name):
        [place] = ask(console, "locate_table", name=name)
        if place["parts"] > _MOST_PARTS:
            raise errors.SyntaxError
    # With this search_path, the catalog prints defaults with schema-qualified names.
    console.connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    found = ask(console, "describe_table", oid=place["oid"])
    if not found:
        raise MissingError(f"There is no table {name!r}: write its name as SQL does, with its schema if that is not on the search path.")
    [row] = found
    if row["kind"] not in {"r", "p"}:
        raise AdoptError(f"{name!r} is no table.")
    if not row["owned"]:
        raise AdoptError(f"Your login does not own {name!r}: run this as its owner, who must be the owner of the queue too.")
    if not row["key"]:
        raise AdoptError(f"The table {name!r} has no primary key to identify its rows.")
    return SourceTable(**{field: row[field] for field in SourceTable._fields})


@contextmanager
def a_name(name: str) -> Iterator[None]:
    """Turn the error about an invalid name into an AdoptError.

    Raises:
        AdoptError: PostgreSQL could not parse the name within the block.
    """
    try:
        yield
    except (errors.InvalidName, errors.SyntaxError, errors.InvalidParameterValue, errors.FeatureNotSupported) as error:
        raise AdoptError(
            f"{name!r} is no name of a table: write it as SQL does, with its schema if that is not on the search path."
        ) from error


def must_fit(table: SourceTable, layout: Layout) -> None:
    """Refuse a table that does not match the layout.

    Raises:
        AdoptError: a column is missing or of another type.
    """
    for column, kind in layout.columns.items():
        if column not in table.columns:
            raise AdoptError(f"The table {table.written} has no column {column!r}, which the layout {layout.name} reads.")
        if kind != "any" and table.columns[column] not in KINDS[kind]:
            found = table.columns[column]
            raise AdoptError(f"The column {column!r} of {table.written} is of type {found}, which the layout {layout.name} cannot read.")


def must_suit_view(console: OperatorSession, table: SourceTable, layout: Layout) -> None:
    """Refuse a table that a view cannot replace with the same behaviour and rows. Call this function within a transaction, like `find`.

    Raises:
        AdoptError: the table has policies or generated columns. Or its owner, with whose rights the view runs, may not see new messages.
    """
    queue = sql.Identifier(console.schema, "queue_message").as_string(None)
    [row] = ask(console, "read_view_terms", name=table.written, queue=queue)
    if row["guarded"]:
        raise AdoptError(f"{table.written} has row level security, and a view would show its rows to all: give --by trigger, or end this.")
    if row["generated"]:
        raise AdoptError(f"{table.written} has a generated column, which a view cannot fill: give --by trigger, or drop that column.")
    if layout.own and not row["sees"]:
        said = f"GRANT USAGE ON SCHEMA {sql.Identifier(console.schema).as_string(None)} and SELECT (id, xid) ON {queue} to {row['owner']}"
        raise AdoptError(f"The view would have the rights of {table.written}'s owner, who may not see the ids of new messages: {said}.")


def same_row(table: SourceTable, other: str) -> str:
    """The SQL condition that `given` and another row are the same row."""
    columns = [sql.Identifier(column).as_string(None) for column in table.key]
    return " AND ".join(f"given.{column} = {other}.{column}" for column in columns)


def view_defaults(table: SourceTable, view: str) -> str:
    """The SQL that gives the table's defaults to the view that replaces it."""
    alter = f"ALTER VIEW {view} ALTER COLUMN"
    return "\n".join(
        f"{alter} {sql.Identifier(column).as_string(None)} SET DEFAULT {expression};" for column, expression in table.defaults.items()
    )


def view_checks(table: SourceTable) -> str:
    """SQL by which a view does what the table did before it stored a row: fill identity columns, and refuse nulls in NOT NULL columns."""
    numbers = [
        f"    NEW.{column} := coalesce(NEW.{column}, nextval({sql.Literal(sequence).as_string(None)}));"
        for column, sequence in ((sql.Identifier(name).as_string(None), found) for name, found in table.identities.items())
    ]
    nulls = [
        f"    IF NEW.{sql.Identifier(name).as_string(None)} IS NULL THEN\n"
        f"        RAISE not_null_violation USING MESSAGE = {_literal(f'null value in column {name} of {table.written}')};\n    END IF;"
        for name in table.not_null
    ]
    return "\n".join([*numbers, *nulls])


def own_rows(table: SourceTable, column: str, schema: str) -> str:
    """The part of a view that shows a transaction its own new messages.

    Only `column` has a value, for applications that delete by this column.
    """
    values = ", ".join("message.id" if name == column else "NULL" for name in table.in_order)
    queue = sql.Identifier(schema, "queue_message").as_string(None)
    return f"\nUNION ALL\nSELECT {values} FROM {queue} AS message WHERE message.xid = pg_current_xact_id_if_assigned()"


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None)
