"""The statement that inserts a row of poison: into the queue, under its key, or past the checks of either."""

from __future__ import annotations

import json
from typing import Final

from psycopg import sql

from tests.support.poison.rows import BUNDLE, DEDUP, FOLDED, ORDERING, Row

PLACES: Final = {key: sql.SQL("queue_message_keyed") for key in (DEDUP, *FOLDED)}
"""Where a row goes that has a key; all others go into the queue."""
SMUGGLED: Final = {key: sql.SQL("queue_message_keyed_row") for key in FOLDED}
"""The same past the checks."""
QUEUE: Final = sql.SQL("queue_message")
Columns = dict[str, sql.Composable]


def insert(row: Row, id_: str) -> sql.Composed:
    """Insert a row."""
    key: Columns = {row.under: sql.Literal(row.queue if row.under == ORDERING else id_)} if row.under else {}
    return _statement(PLACES.get(row.under, QUEUE), {**_columns(row, id_), **key})


def smuggle(row: Row, id_: str) -> sql.Composed:
    """Insert a row where no trigger fires: what is known by a key is not asked, and what a fold will take is written as it keeps it."""
    columns = _columns(row, id_)
    if row.under in FOLDED:
        number = "nextval(pg_get_serial_sequence('queue_message', 'seq'))"
        columns |= {row.under: sql.Literal(id_), "due_at": sql.SQL("now()"), "seq": sql.SQL(number)}
    if row.under == BUNDLE:
        columns["content"] = sql.SQL("jsonb_build_array({}::jsonb)").format(columns.get("content", sql.Literal("{}")))
    if row.under == ORDERING:
        columns[ORDERING] = sql.Literal(row.queue)
    return _statement(SMUGGLED.get(row.under, QUEUE), columns)


def _statement(table: sql.SQL, columns: Columns) -> sql.Composed:
    names, values = map(sql.SQL, columns), columns.values()
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, sql.SQL(", ").join(names), sql.SQL(", ").join(values))


def _columns(row: Row, id_: str) -> Columns:
    columns = {**{name: sql.Literal(value) for name, value in {"id": id_, **row.target}.items()}, **row.columns.values()}
    if row.options.columns or row.headers:
        columns["options"] = _options(row)
    return columns


def _options(row: Row) -> sql.Composable:
    given = row.options.values().get("options", sql.Literal("{}"))
    if not row.takes_headers:
        return given
    merged = "jsonb_set({0}::jsonb, '{{headers}}', coalesce(nullif({0}::jsonb->'headers', 'null'), '{{}}') || {1}::jsonb)"
    return sql.SQL(merged).format(given, sql.Literal(json.dumps(row.headers)))
