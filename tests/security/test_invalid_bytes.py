"""COPY in the encoding SQL_ASCII is checked by nobody but the schema: bytes that are no UTF-8 come into no table."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database.queue import Queue

PLACES = [
    *(("queue_message", name) for name in ("exchange", "routing_key", "ordering_key", "content", "options")),
    *(("queue_message_keyed", name) for name in ("exchange", "routing_key", "ordering_key", "content", "options")),
    *(("queue_message_keyed", name) for name in ("dedup_key", "coalesce_key", "bundle_key")),
    *(("queue_message_received", name) for name in ("consumer", "message_id")),
]
VALUES = {"content": b'{"a": "\xff"}', "options": b'{"appId": "\xff"}'}
OTHERS = {"queue_message": "exchange", "queue_message_keyed": "exchange", "queue_message_received": "consumer"}


@pytest.mark.parametrize("how", ["the statement", "the session"])
@pytest.mark.parametrize(("relation", "column"), PLACES)
async def test_copy_stores_no_invalid_bytes(queue: Queue, relation: str, column: str, how: str) -> None:
    """Whatever column has them, and whether the statement or the session names the encoding."""
    row = {OTHERS[relation]: b"x"}
    if relation == "queue_message_received":
        row["message_id"] = b"1"
    if relation == "queue_message_keyed":
        row |= {"dedup_key": b"d"} if column in {"exchange", "routing_key", "ordering_key", "content", "options"} else {}
    row[column] = VALUES.get(column, b"\xff")
    if how == "the session":
        await queue.sql("SET client_encoding = SQL_ASCII")
    encoding = " (ENCODING 'SQL_ASCII')" if how == "the statement" else ""
    async with queue.connection.cursor() as cursor:
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire, match="invalid byte sequence"):
            async with cursor.copy(f"COPY {relation} ({', '.join(row)}) FROM STDIN{encoding}") as copy:
                await copy.write(b"\t".join(row.values()) + b"\n")


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
