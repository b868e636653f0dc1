"""Rows of the archive as a relay would have written them, on days of the test's choice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

Row = Mapping[str, object]
SETTLED = datetime(2024, 5, 1, 12, tzinfo=UTC)
"""When rows were archived that say nothing else."""
USUAL: dict[str, object] = {
    "exchange": "orders",
    "routing_key": "paid",
    "content": '{"total": 1}',
    "options": "{}",
    "attempts": 1,
    "result": "success",
    "handled_by": "relay-1",
}
BULK = """
    INSERT INTO public.queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result,
        handled_by, claimed_at, published_at, confirmed_at, archived_at)
    SELECT pg_current_xact_id(),
        coalesce(%(first)s, (SELECT coalesce(max(seq), 0) + 1 FROM public.queue_message_archive)) + n, gen_random_uuid(),
        'exchange-' || n %% 5, 'key-' || n %% 50, jsonb_build_object('number', n, 'text', repeat('x', 100)), '{}',
        %(at)s - interval '3 s', 1, %(result)s, 'relay-1', %(at)s - interval '2 s', %(at)s - interval '1 s', %(at)s, %(at)s
    FROM generate_series(0, %(count)s - 1) AS n
"""
NO_REPLAY = (
    "its content is larger than a gigabyte as text, or it held bytes that are no UTF-8; write its numbers as strings and other letters, "
    "and insert it anew."
)
"""Why such a message is not replayed."""
UNPRINTABLE = """
    INSERT INTO public.queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result,
        archived_at, error_code, error_detail, handled_by)
    SELECT pg_current_xact_id(), (SELECT max(seq) + 1 FROM public.queue_message_archive), gen_random_uuid(), 'orders', '',
        to_jsonb(%s::text) || jsonb_agg('1e131071'::jsonb), '{}', now(), 0, 'rejected', %s, 'content_unprintable',
        'content is larger than a gigabyte as text: write its numbers shorter.', 'relay migrate'
    FROM generate_series(1, 9000)
"""


def insert(connection: psycopg.Connection[Any], *rows: Row, leave_out: str = "") -> list[tuple[int, int]]:
    """Archive rows in the connection's transaction, each with what it says and `USUAL` for the rest but one; return each (xid, seq)."""
    for day in {_archived_at(row) for row in rows}:
        connection.execute("SELECT public.queue_message_ensure_partitions(0, %s)", [day])
    return [_insert(connection, row, leave_out) for row in rows]


def insert_many(
    connection: psycopg.Connection[Any], count: int, *, archived_at: datetime = SETTLED, first: int | None = None, result: str = "success"
) -> None:
    """Archive so many messages at once, of five exchanges and fifty keys; `first` is the lowest seq."""
    connection.execute("SELECT public.queue_message_ensure_partitions(0, %s)", [archived_at])
    connection.execute(BULK, {"count": count, "at": archived_at, "first": first, "result": result})


def insert_unprintable(connection: psycopg.Connection[Any], text: str = "") -> None:
    """Archive, after others, a content that begins with a text, takes a few bytes and is more than a gigabyte as text."""
    connection.execute(UNPRINTABLE, [text, SETTLED])


def _archived_at(row: Row) -> datetime:
    at = row.get("archived_at", SETTLED)
    assert isinstance(at, datetime)
    return at


def _insert(connection: psycopg.Connection[Any], row: Row, leave_out: str) -> tuple[int, int]:
    at = _archived_at(row)
    values = {name: value for name, value in {**USUAL, "created_at": at, "archived_at": at, **row}.items() if name != leave_out}
    usual = {
        "xid": "pg_current_xact_id()",
        "id": "gen_random_uuid()",
        "seq": "(SELECT coalesce(max(seq), 0) + 1 FROM public.queue_message_archive)",
    }
    extra = {name: text for name, text in usual.items() if name not in values}
    statement = sql.SQL("INSERT INTO public.queue_message_archive ({}) VALUES ({}) RETURNING xid::text, seq").format(
        sql.SQL(", ").join(map(sql.Identifier, [*values, *extra])),
        sql.SQL(", ").join([*map(sql.Placeholder, values), *(sql.SQL(text) for text in extra.values())]),
    )
    found = connection.execute(statement, values).fetchone()
    assert found is not None
    return int(found[0]), found[1]
