"""How retention walks coalesce keys: so many a call, whatever becomes of them, and those that must stay are passed for a day."""

from __future__ import annotations

import psycopg

from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import Queue, resize

PAGE = 10
OLD = "now() - make_interval(days => 2, secs => -n)"
KEPT = f"""WITH waiting AS (INSERT INTO queue_message (exchange, available_at)
        SELECT 'e', now() + interval '1 year' FROM generate_series(1, %s) RETURNING id, seq)
    INSERT INTO queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
    SELECT 'e', id::text, id, seq, {OLD} FROM (SELECT id, seq, row_number() OVER (ORDER BY seq) AS n FROM waiting) numbered"""
SENT = f"""INSERT INTO queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
    SELECT 'e', 'sent ' || n, gen_random_uuid(), n, {OLD} FROM generate_series(%s::int, %s::int) n"""


async def retain(queue: Queue, days: float = 0) -> list[tuple[str, int | None]]:
    """What one call does with keys, whatever another call named as the time."""
    await queue.sql("UPDATE queue_message_clock_seen SET seen_at = NULL WHERE chore = 'retention'")
    return await queue.sql(
        "SELECT action, messages FROM queue_message_retain(now() + make_interval(secs => %s * 86400)) "
        "WHERE target IN ('queue_message_dedup', 'queue_message_coalesced')",
        days,
    )


async def keys(queue: Queue) -> int:
    """How many are known."""
    return int(await queue.value("SELECT count(*) FROM queue_message_coalesced"))


async def small_pages(queue: Queue) -> None:
    """Let a call look at few keys."""
    await resize(queue, "queue_message_delete_coalesced", "50000", str(PAGE))


async def test_keys_that_must_stay_keep_no_others_and_are_passed_for_a_day(queue: Queue) -> None:
    """Each call looks at the next ones and says that there are more, until all were looked at; then nothing is left to do."""
    await small_pages(queue)
    await queue.sql(KEPT, 25)
    await queue.sql(SENT, 100, 104)

    more = ("unfinished", None)
    assert [[more], [more], [("deleted", 5), more], []] == [await retain(queue) for _ in range(4)]

    await queue.sql("DELETE FROM queue_message")
    assert [] == await retain(queue)
    assert [[("deleted", PAGE), more], [("deleted", PAGE), more], [("deleted", 5)], []] == [await retain(queue, 1.1) for _ in range(4)]


async def test_keys_that_grow_old_later_are_looked_at_meanwhile(queue: Queue) -> None:
    """They are behind the place that the walk has reached."""
    await small_pages(queue)
    await queue.sql(KEPT, 5)
    assert [] == await retain(queue)
    await queue.sql(SENT, 100, 102)
    assert [("deleted", 3)] == await retain(queue)


async def test_a_clock_that_was_set_back_keeps_no_key_for_longer(queue: Queue) -> None:
    """What a walk has noted for a time far ahead is not waited for."""
    await small_pages(queue)
    await queue.sql(KEPT, 5)
    assert [] == await retain(queue, 400)
    await queue.sql("DELETE FROM queue_message")
    assert [("deleted", 5)] == await retain(queue)


async def test_a_key_in_somebodys_hands_is_not_waited_for(queue: Queue) -> None:
    """A fold that sends under it renews it, and it stays."""
    await small_pages(queue)
    await queue.sql(SENT, 1, 3)
    await queue.sql("SET lock_timeout = '1s'")
    async with await psycopg.AsyncConnection.connect(queue.url) as fold:
        await fold.execute("UPDATE queue_message_coalesced SET folded_at = now() WHERE coalesce_key = 'sent 2'")
        assert [("deleted", 2)] == await retain(queue)
        await fold.commit()
    assert [[], [("deleted", 1)]] == [await retain(queue), await retain(queue, 2)]


async def test_two_at_once_walk_no_key_twice(queue: Queue) -> None:
    """The second leaves them to the first."""
    await queue.sql(SENT, 1, 3)
    await queue.sql("SET lock_timeout = '1s'")
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT queue_message_delete_keys(now())")
        assert 0 == await queue.value("SELECT queue_message_delete_keys(now())")
        await other.commit()
    assert 0 == await keys(queue)


async def test_a_fold_of_renumbered_messages_supersedes_none_that_came_after_it(queue: Queue) -> None:
    """Retention that passes a key does not make its last fold a later one: what was inserted meanwhile, with a lower number, is newer."""
    await queue.insert(100)
    insert = "INSERT INTO queue_message_keyed (exchange, coalesce_key, content) VALUES ('e', 'k', %s::jsonb)"
    await queue.sql(insert, "1")
    await queue.sql("SELECT queue_message_fold()")
    await queue.sql("UPDATE queue_message_coalesced SET folded_at = now() - interval '2 days'")
    last = await queue.value("SELECT max(seq) FROM queue_message")
    await queue.sql("DELETE FROM queue_message WHERE seq < %s", last)
    await queue.sql("ALTER TABLE queue_message ALTER COLUMN seq RESTART")
    await queue.sql(insert, "2")
    assert [] == await retain(queue)
    await queue.sql("SELECT queue_message_fold()")
    assert [(2,)] == await queue.sql("SELECT content FROM queue_message WHERE exchange = 'e'")


async def test_a_relay_goes_on_at_once_where_a_page_deleted_nothing(queue: Queue, upkeep: PostgresMaintenance) -> None:
    """As where it has deleted something; it rests when all were looked at."""
    await small_pages(queue)
    await queue.sql(KEPT, PAGE + 1)
    assert [(0, 1), (0, 0)] == [await upkeep.retain() for _ in range(2)]


async def test_keys_are_deleted_where_only_the_schema_was_restored(queue: Queue) -> None:
    """The place of the walk is lost with all other rows."""
    await queue.sql("DELETE FROM queue_message_walk")
    await queue.sql(SENT, 1, 3)
    assert [("deleted", 3)] == await retain(queue)
