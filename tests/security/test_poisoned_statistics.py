"""Statistics that a producer has chosen slow down neither folds nor what removes old keys: each lookup fits one index alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.database.keyed import fold, unhurried
from tests.support.database.queue import Queue

COUNT = 1000
EACH = 50
"""Entries of indexes and rows that may be read for each key. Measured: 1 to 13; by the primary key, or without an index, 500 to 2,500."""
SAME = """
    INSERT INTO queue_message_keyed (exchange, {kind}, available_at)
    SELECT repeat('x', 255), 'same', '2199-1-1Z' FROM generate_series(1, 8000)
"""
LONG = """
    INSERT INTO queue_message_keyed (exchange, {kind})
    SELECT repeat('x', 255), repeat(chr(97 + n %% 26), 900) || lpad(n::text, 8, '0') FROM generate_series(1, %s) AS n
"""
READ = """
    SELECT sum(pg_stat_get_xact_tuples_returned(relation))::bigint FROM (
        SELECT indexrelid AS relation FROM pg_index WHERE indrelid = 'queue_message_keyed_row'::regclass
        UNION ALL SELECT 'queue_message_keyed_row'::regclass
    ) AS either
"""


@asynccontextmanager
async def reading_little(queue: Queue) -> AsyncIterator[None]:
    """In the transaction of this context few entries and rows of the table of keys are read for each key."""
    async with queue.connection.transaction():
        yield
        read = await queue.value(READ)
    assert COUNT <= read <= EACH * COUNT


async def poison(queue: Queue, kind: str) -> None:
    """Let PostgreSQL know a single key, as after an autovacuum."""
    await queue.sql(SAME.format(kind=kind))
    await queue.sql("VACUUM ANALYZE queue_message_keyed_row")
    assert 1 == await queue.value("SELECT n_distinct FROM pg_stats WHERE tablename = 'queue_message_keyed_row' AND attname = %s", kind)
    await queue.sql("TRUNCATE queue_message_keyed_row")


@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
async def test_a_fold_finds_each_key_by_its_index(queue: Queue, kind: str) -> None:
    """Although the primary key seems to be as good."""
    await unhurried(queue)
    await poison(queue, kind)
    async with reading_little(queue):
        await queue.sql(LONG.format(kind=kind), COUNT)
        assert COUNT == await fold(queue, "1 min")


@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
async def test_what_cannot_be_folded_is_put_off_by_its_index(queue: Queue, kind: str) -> None:
    """A key's other messages are put off with it. The function is called by a fold, whose settings it has."""
    await poison(queue, kind)
    async with reading_little(queue):
        for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
            await queue.sql(f"SET LOCAL {setting} = off")
        await queue.sql(LONG.format(kind=kind), COUNT)
        await queue.sql("SELECT queue_message_keyed_failed(ARRAY[seq], now(), 'refused') FROM queue_message_keyed_row")


@pytest.mark.parametrize("waits", ["NULL", "'2199-1-1Z'"], ids=["due", "delayed"])
async def test_old_keys_are_removed_next_to_many_messages_that_wait(queue: Queue, waits: str) -> None:
    """Those of keys that wait are kept, whichever way they wait."""
    async with reading_little(queue):
        await queue.sql(
            "INSERT INTO queue_message_keyed (exchange, coalesce_key, available_at)"
            f" SELECT 'x', n, {waits} FROM generate_series(1, %s) AS n",
            COUNT,
        )
        await queue.sql(
            "INSERT INTO queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)"
            " SELECT 'x', n, gen_random_uuid(), n, now() - interval '2 days' FROM generate_series(1, %s) AS n",
            3 * COUNT,
        )
        assert 2 * COUNT == await queue.value("SELECT queue_message_delete_coalesced(now())")
