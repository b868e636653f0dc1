"""Statistics that a producer has chosen slow down neither folds nor what removes old keys: each lookup fits one index alone."""

from __future__ import annotations

import time

import pytest

from tests.support.database.keyed import fold, unhurried
from tests.support.database.queue import Queue

COUNT = 3000
TIMES = 4
"""As long as with other statistics, at the most. Measured: 0.9 to 1.3; by the primary key 30 and more."""
NEXT_TO_MANY = 20
"""As long as next to a single message, at the most. Measured: 1.3; without an index 100."""
SAME = """
    INSERT INTO queue_message_keyed (exchange, {kind}, available_at)
    SELECT repeat('x', 255), 'same', '2199-1-1Z' FROM generate_series(1, 8000)
"""
LONG = """
    INSERT INTO queue_message_keyed (exchange, {kind})
    SELECT repeat('x', 255), repeat(chr(97 + n %% 26), 900) || lpad(n::text, 8, '0') FROM generate_series(1, %s) AS n
"""


async def poison(queue: Queue, kind: str) -> None:
    """Let PostgreSQL know a single key, as after an autovacuum."""
    await queue.sql(SAME.format(kind=kind))
    await queue.sql("VACUUM ANALYZE queue_message_keyed_row")
    assert 1 == await queue.value("SELECT n_distinct FROM pg_stats WHERE tablename = 'queue_message_keyed_row' AND attname = %s", kind)
    await queue.sql("DELETE FROM queue_message_keyed_row")


@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
async def test_a_fold_finds_each_key_by_its_index(queue: Queue, kind: str) -> None:
    """With the statistics of an empty table, and with those of a table with one key."""
    await unhurried(queue)
    seconds = []
    for poisoned in (False, True):
        if poisoned:
            await poison(queue, kind)
        await queue.sql(LONG.format(kind=kind), COUNT)
        began = time.monotonic()
        assert COUNT == await fold(queue, "1 min")
        seconds.append(time.monotonic() - began)
    assert seconds[1] < TIMES * seconds[0], seconds


@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
async def test_what_cannot_be_folded_is_put_off_by_its_index(queue: Queue, kind: str) -> None:
    """A key's other messages are put off with it. The function is called by a fold, whose settings it has."""
    for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
        await queue.sql(f"SET {setting} = off")
    seconds = []
    for poisoned in (False, True):
        if poisoned:
            await poison(queue, kind)
        await queue.sql(LONG.format(kind=kind), COUNT)
        last = [seq for (seq,) in await queue.sql("SELECT seq FROM queue_message_keyed_row ORDER BY seq LIMIT 300")]
        began = time.monotonic()
        await queue.sql("SELECT queue_message_keyed_failed(ARRAY[one], now(), 'refused') FROM unnest(%s::bigint[]) AS one", last)
        seconds.append(time.monotonic() - began)
        await queue.sql("DELETE FROM queue_message_keyed_row")
    assert seconds[1] < TIMES * seconds[0], seconds


@pytest.mark.parametrize("waits", ["NULL", "'2199-1-1Z'"], ids=["due", "delayed"])
async def test_old_keys_are_removed_next_to_many_messages_that_wait(queue: Queue, waits: str) -> None:
    """Those of keys that wait are kept, whichever way they wait."""
    seconds = []
    for waiting in (1, COUNT):
        await queue.sql("TRUNCATE queue_message_keyed_row, queue_message_coalesced")
        await queue.sql(
            "INSERT INTO queue_message_keyed (exchange, coalesce_key, available_at)"
            f" SELECT 'x', n, {waits} FROM generate_series(1, %s) AS n",
            waiting,
        )
        await queue.sql(
            "INSERT INTO queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)"
            " SELECT 'x', n, gen_random_uuid(), n, now() - interval '2 days' FROM generate_series(1, %s) AS n",
            3 * COUNT,
        )
        await queue.sql("UPDATE queue_message_walk SET past = '-infinity', again_at = '-infinity', more = false WHERE name = 'coalesced'")
        began = time.monotonic()
        assert 3 * COUNT - waiting == await queue.value("SELECT queue_message_delete_coalesced(now())")
        seconds.append(time.monotonic() - began)
    assert seconds[1] < NEXT_TO_MANY * seconds[0], seconds
