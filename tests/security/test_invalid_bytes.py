"""COPY in the encoding SQL_ASCII is checked by nobody but the schema: bytes that are no UTF-8 come into no table."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database.queue import Queue

TEXTS = ("exchange", "routing_key", "ordering_key", "content", "options")
KEYS = ("dedup_key", "coalesce_key", "bundle_key")
BAD = {"content": b'{"a": "\xff"}', "options": b'{"appId": "\xff"}'}
MESSAGE = {"exchange": b"x"}
ROUTES = {
    "plain": {},
    "delayed": {"available_at": b"2199-1-1Z"},
    "with options": {"options": b'{"priority": 1}'},
    "large": {"content": b'{"a": "%s"}' % (b"x" * 70_000)},
    "large and compressed": {"content": b'{"a": "%s"}' % (b"x" * 200_000)},
}
"""Columns with which a message is looked at more closely, or not."""
PLACES = [
    *(("queue_message", MESSAGE, name) for name in TEXTS),
    *(("queue_message_keyed", MESSAGE | {key: b"k"}, name) for key in KEYS for name in (*TEXTS, key)),
    *(("queue_message_received", {"consumer": b"x", "message_id": b"1"}, name) for name in ("consumer", "message_id")),
]


async def refused(queue: Queue, relation: str, row: dict[str, bytes], encoding: str = " (ENCODING 'SQL_ASCII')") -> None:
    """Copy a row, which must be refused."""
    async with queue.connection.cursor() as cursor:
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire, match="invalid byte sequence"):
            async with cursor.copy(f"COPY {relation} ({', '.join(row)}) FROM STDIN{encoding}") as copy:
                await copy.write(b"\t".join(row.values()) + b"\n")


@pytest.mark.parametrize(("relation", "row", "column"), PLACES)
async def test_copy_stores_no_invalid_bytes(queue: Queue, relation: str, row: dict[str, bytes], column: str) -> None:
    """Whatever column has them, and whether the statement or the session names the encoding."""
    bad = row | {column: BAD.get(column, b"\xff")}
    await refused(queue, relation, bad)
    await queue.sql("SET client_encoding = SQL_ASCII")
    await refused(queue, relation, bad, encoding="")


@pytest.mark.parametrize("traced", ["", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"], ids=["", "traced"])
@pytest.mark.parametrize("column", TEXTS)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_closer_look_at_a_message_passes_over_no_bytes(queue: Queue, route: str, column: str, traced: str) -> None:
    """For whatever reason it is taken."""
    await queue.sql("SELECT set_config('relay.traceparent', %s, false)", traced)
    row = MESSAGE | ROUTES[route]
    at_the_end = row.get(column, b"{}")[:-1] + b', "z": "\xff"}' if column == "content" and column in row else BAD.get(column, b"\xff")
    await refused(queue, "queue_message", row | {column: at_the_end})


async def test_a_key_is_looked_up_by_its_index_whatever_statistics_know(queue: Queue) -> None:
    """As after a rollback, they know no key that is in force: the index of times seems to find none at once."""
    await queue.sql("INSERT INTO queue_message_keyed (exchange, dedup_key) SELECT 'x', 'old' || n FROM generate_series(1, 5000) AS n")
    await queue.sql("UPDATE queue_message_dedup SET until = now() - interval '1 s'")
    await queue.sql("VACUUM ANALYZE queue_message_dedup")
    await queue.sql("UPDATE queue_message_dedup SET until = now() + interval '1 day'")
    async with queue.connection.transaction():
        await queue.sql("SELECT queue_message_first('x', 'old' || n, gen_random_uuid(), 60) FROM generate_series(1, 300) AS n")
        scans = await queue.value("SELECT pg_stat_get_xact_numscans('queue_message_dedup_until_idx'::regclass)")
    assert 0 == scans
