"""Plans that a session made while a table was empty: what looks one message or key up reads no whole table once it is full."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.support.database.queue import Queue

FEW, MANY, CALLS = 10, 2_000, 100
"""Calls that plan (PostgreSQL keeps a plan from the sixth on), messages and keys that come then, and calls that are counted."""
READS = 3 * MANY
"""Rows that the calls may read by walking tables: less than a walk for every 30 of them. With an index for each look they read none."""
DIE = """WITH gone AS (DELETE FROM queue_message RETURNING *)
    INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result, error_code)
    SELECT xid, seq, id, exchange, routing_key, content, options, created_at, 1, 'failed', 'unroutable' FROM gone"""
DEAD = (
    "INSERT INTO queue_message (id, exchange) SELECT id, 'e' FROM unnest(%(ids)s::uuid[]) id",
    DIE,
    "INSERT INTO queue_message (exchange) SELECT 'e' FROM unnest(%(ids)s::uuid[]) id",
)
WAITING = ("INSERT INTO queue_message (id, exchange) SELECT id, 'e' FROM unnest(%(ids)s::uuid[]) id",)
KEYED = "INSERT INTO queue_message_keyed (id, exchange, {0}_key) SELECT id, 'e', id::text FROM unnest(%(ids)s::uuid[]) id"
LOOKS: dict[str, tuple[tuple[str, ...], str]] = {
    "a new dedup_key": (
        (KEYED.format("dedup"),),
        "INSERT INTO queue_message_keyed (exchange, dedup_key) SELECT 'other', id::text FROM unnest(%(ids)s::uuid[]) id",
    ),
    "a dedup_key that is known": ((KEYED.format("dedup"),), "SELECT queue_message_known('e', id::text) FROM unnest(%(ids)s::uuid[]) id"),
    "a coalesce_key": ((KEYED.format("coalesce"),), "SELECT queue_message_cancel(id) FROM unnest(%(ids)s::uuid[]) id"),
    "a bundle_key": ((KEYED.format("bundle"),), "SELECT queue_message_cancel(id) FROM unnest(%(ids)s::uuid[]) id"),
    "cancel": (WAITING, "SELECT queue_message_cancel(id) FROM unnest(%(ids)s::uuid[]) id"),
    "acknowledge": (DEAD, "SELECT queue_message_dead_acknowledge(id) FROM unnest(%(ids)s::uuid[]) id"),
    "replay": (DEAD, "SELECT queue_message_replay(id) FROM unnest(%(ids)s::uuid[]) id"),
    "replay with the same id": (DEAD, "SELECT queue_message_replay(id, same_id => true) FROM unnest(%(ids)s::uuid[]) id"),
    "replay at a place": (
        DEAD,
        "SELECT queue_message_replay_at(d.id, d.xid, d.seq) FROM queue_message_dead d WHERE d.id = ANY (%(ids)s::uuid[])",
    ),
    "replay many": (DEAD, "SELECT queue_message_replay_many(dry_run => false)"),
    "dead replay": (
        DEAD,
        "SELECT queue_message_dead_replay(d.id, d.xid, d.seq, 5) FROM queue_message_dead d WHERE d.id = ANY (%(ids)s::uuid[])",
    ),
    "replays before": (DEAD, "SELECT queue_message_replays_before(id, '3', 1, 5) FROM unnest(%(ids)s::uuid[]) id"),
}


async def walked(queue: Queue) -> dict[str, int]:
    """Rows that were read by walking, by table, but for the few of settings."""
    await queue.sql("SELECT pg_stat_force_next_flush()")
    await queue.sql("SELECT pg_stat_clear_snapshot()")
    return dict(await queue.sql("SELECT relname::text, seq_tup_read FROM pg_stat_user_tables WHERE relname <> 'queue_message_setting'"))


async def empty(queue: Queue) -> None:
    """Let statistics say that every table is empty, as after a start, or whenever a queue was drained."""
    for (table,) in await queue.sql("SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public'"):
        await queue.sql(f"VACUUM ANALYZE {table}")


@pytest.mark.parametrize("look", LOOKS)
async def test_a_session_that_saw_empty_tables_walks_no_full_one(queue: Queue, look: str) -> None:
    """However long the session lives: a producer's pool, an operator's page and the relay keep theirs for days."""
    grow, call = LOOKS[look]
    await empty(queue)

    async def run(statement: str, some: list[str]) -> Any:
        return await queue.connection.execute(statement, {"ids": some})

    for few in ([str(uuid4())] for _ in range(FEW)):
        for statement in (*grow, call):
            await run(statement, few)
    many = [str(uuid4()) for _ in range(MANY)]
    for statement in grow:
        await run(statement, many)
    before = await walked(queue)

    await run(call, many[:CALLS])

    after = await walked(queue)
    assert {} == {table: rows - before.get(table, 0) for table, rows in after.items() if rows - before.get(table, 0) > READS}
