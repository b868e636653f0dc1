"""Messages of another cluster, written as a restore does, and the calls that renumber them."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.support.database.queue import Queue, unchecked

FAR = 1 << 33
"""An id that no cluster of these tests comes to."""
BRING = """
    INSERT INTO queue_message (xid, seq, exchange, ordering_key, available_at, lock_expires_at, lock_token, locked_by, attempts)
    OVERRIDING SYSTEM VALUE
    SELECT given.xid::text::xid8, given.seq, 'restored', given.key, given.available_at, given.lock_expires_at, given.lock_token,
        given.locked_by, coalesce(given.attempts, 0)
    FROM jsonb_to_recordset(%s::jsonb) AS given (xid bigint, seq bigint, key text, available_at timestamptz, lock_expires_at timestamptz,
        lock_token uuid, locked_by int, attempts int)
    ORDER BY given.seq DESC
"""
PLACES = "SELECT exchange, ordering_key FROM queue_message ORDER BY xid, seq"


async def bring(queue: Queue, *messages: dict[str, Any]) -> None:
    """Write messages as a restore does: with their own ids, without triggers, in one transaction."""
    async with unchecked(queue):
        await queue.sql(BRING, Jsonb([{"seq": number, **message} for number, message in enumerate(messages, start=1)]))


async def renumber(queue: Queue, most: int = 1000) -> int:
    """Renumber all in such steps; return how many."""
    return await renumber_by(queue.connection, most)


async def renumber_by(connection: psycopg.AsyncConnection[Any], most: int = 1000) -> int:
    """The same, over the connection of a login that may."""
    total, more = 0, True
    while more:
        [(renumbered, more, looked, _)] = await (await connection.execute("SELECT * FROM queue_message_renumber(%s)", [most])).fetchall()
        assert renumbered <= (looked or 0) <= most
        total += renumbered
    return total


async def places(queue: Queue) -> list[tuple[str, str]]:
    """Exchange and ordering key of every message, in claim order."""
    return await queue.sql(PLACES)


async def keys(queue: Queue) -> list[str]:
    """The ordering key of every message, in claim order."""
    return [key for _, key in await places(queue)]


async def pass_ids(queue: Queue, count: int) -> None:
    """Let so many transactions go by."""
    for _ in range(count):
        await queue.sql("SELECT pg_current_xact_id()")
