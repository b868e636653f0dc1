"""What status, gauges and the tasks of the minute walk: no more of a long queue than of a short one, and in pages all of it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from relay.message import Position
from relay.ports import Places
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.queries.statements import text
from tests.support.database.queue import MadeStore, Queue, resize, unchecked

SHORT, LONG = 110_000, 220_000
"""Both longer than a page of the sweep and than any other look."""
GROWTH = 1.15
"""Measured: 1.00 to 1.03; 1.9 to 2.0 where all is walked."""
DELAYED = """INSERT INTO queue_message (exchange, available_at)
    SELECT 'e', date_trunc('day', now()) + make_interval(days => 2, secs => n) FROM generate_series(%s + 1, %s) n"""
LOOKS = (
    "SELECT * FROM queue_message_status",
    "SELECT * FROM queue_message_count()",
    "SELECT queue_message_oldest()",
    "SELECT queue_message_suspects()",
    "SELECT * FROM queue_message_retrying()",
    "SELECT count(*) FROM queue_message_blocked_key",
    "SELECT * FROM queue_message_sweep_minute()",
    "SELECT queue_message_reject_unprintable()",
    "SELECT queue_message_renotify()",
    "SELECT queue_message_delete_keys(now())",
)
SENT_LONG_AGO = """INSERT INTO queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
    SELECT m.exchange, m.seq::text, m.id, m.seq, now() - interval '2 days' + make_interval(secs => m.seq / 10.0) FROM queue_message m
    ON CONFLICT DO NOTHING"""
"""Keys whose messages still wait."""
LISTED = text("list_blocked_keys").replace("@schema@.", "").replace("%(most)s", "{most}").replace("%(paused)s", "false")
"""Of so many keys."""
PARKED = """WITH parked AS (
        INSERT INTO queue_message_key_hold (ordering_key) SELECT 'parked ' || n FROM generate_series(%s + 1, %s) n RETURNING ordering_key)
    INSERT INTO queue_message (exchange, ordering_key) SELECT 'e', ordering_key FROM parked"""


async def make_large(queue: Queue) -> None:
    """Let any queue count as one that is not counted row by row."""
    await resize(queue, "queue_message_count", "128 * 1024 * 1024", "1")
    await analyze(queue)


async def analyze(queue: Queue) -> None:
    """Let the statistics be those of now."""
    await queue.sql("SELECT pg_stat_force_next_flush()")
    await queue.sql("ANALYZE queue_message")
    await queue.sql("SELECT pg_stat_clear_snapshot(), pg_stat_force_next_flush()")


async def pages(queue: Queue, statement: str) -> int:
    """How many pages a statement looks at, the second time from the beginning of a walk."""
    for _ in range(2):
        await queue.sql("UPDATE queue_message_walk SET xid = '0', seq = 0")
        [[[answer]]] = await queue.sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    return int(answer["Plan"]["Shared Hit Blocks"]) + int(answer["Plan"]["Shared Read Blocks"])


async def lock(queue: Queue, *ids: str, seconds: float = -1) -> None:
    """Lock messages by hand, by default until a second ago."""
    await queue.sql(
        "UPDATE queue_message SET lock_expires_at = now() + make_interval(secs => %s) WHERE id = ANY(%s::uuid[])", seconds, [*ids]
    )


async def sweep(queue: Queue) -> tuple[int, int]:
    """Sweep as the minute does."""
    [swept] = await queue.sql("SELECT released, archived FROM queue_message_sweep_minute()")
    return swept[0], swept[1]


async def test_a_queue_twice_as_long_costs_no_look_more(queue: Queue) -> None:
    """Of messages that failed and wait: nothing that relays and operators ask every few seconds walks them all."""
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    await make_large(queue)
    costs: list[dict[str, int]] = []
    for numbers in ((0, SHORT), (SHORT, LONG)):
        async with unchecked(queue):
            await queue.sql(DELAYED, *numbers)
            await queue.sql("UPDATE queue_message SET last_error = 'nacked: no' WHERE last_error IS NULL")
            await queue.sql(SENT_LONG_AGO)
        await queue.sql("VACUUM ANALYZE queue_message, queue_message_coalesced")
        await analyze(queue)
        costs.append({look: await pages(queue, look) for look in LOOKS})

    short, long = costs
    assert [] == [(look, short[look], long[look]) for look in LOOKS if long[look] > GROWTH * short[look] + 100]


async def test_parked_keys_by_the_hundred_thousand_are_counted_and_listed_up_to_a_bound(queue: Queue) -> None:
    """A producer can park them where dead messages do. Status counts 10,000, and the list looks at the heads of as many."""
    await make_large(queue)
    listed = LISTED.format(most=20)
    costs: list[tuple[int, int]] = []
    for numbers in ((0, 30_000), (30_000, 90_000)):
        async with unchecked(queue):
            await queue.sql(PARKED, *numbers)
        await queue.sql("VACUUM ANALYZE queue_message, queue_message_key_hold")
        costs.append((await pages(queue, "SELECT blocked_keys FROM queue_message_status"), await pages(queue, listed)))

    assert [True, True] == [long < GROWTH * short + 100 for short, long in zip(*costs, strict=True)]
    assert 10_000 == await queue.value("SELECT blocked_keys FROM queue_message_status")
    assert 90_000 == await queue.value("SELECT count(*) FROM queue_message_blocked_key")
    assert ["parked 1", "parked 10"] == [key for key, *_ in await queue.sql(LISTED.format(most=2))]


async def test_a_list_of_keys_counts_what_waits_behind_those_that_it_shows(queue: Queue) -> None:
    """And behind no others."""
    for key in range(20):
        await queue.insert(2000, ordering_key=f"k{key:02}")
    await queue.sql("INSERT INTO queue_message_key_hold (ordering_key) SELECT DISTINCT ordering_key FROM queue_message")
    await analyze(queue)
    one, all_of_them = [await pages(queue, LISTED.format(most=most)) for most in (1, 20)]
    assert [("k00", 1999)] == [(key, behind) for key, _, behind, *_ in await queue.sql(LISTED.format(most=1))]
    assert one < all_of_them / 5


async def test_few_delayed_messages_of_a_large_queue_are_counted_and_many_estimated(queue: Queue) -> None:
    """Up to 10,000 exactly; beyond that by the statistics, within a tenth here."""
    await queue.insert(20_000)
    await queue.sql(DELAYED, 0, 100)
    await make_large(queue)
    count = "SELECT counted, delayed FROM queue_message_count()"
    assert [(False, 100)] == await queue.sql(count)

    await queue.sql(DELAYED, 100, 20_000)
    await analyze(queue)
    [(counted, delayed)] = await queue.sql(count)
    assert (False, pytest.approx(20_000, rel=0.1)) == (counted, delayed)


@pytest.mark.parametrize("living", [True, False])
async def test_the_oldest_is_found_behind_many_that_wait(queue: Queue, store: MadeStore, *, living: bool) -> None:
    """More than one look walks stand before it: it is found where a relay claims next, or with none at the end of the queue."""
    await queue.sql(DELAYED, 0, 25_000)
    [ready] = await queue.insert()
    [(created, xid)] = await queue.sql("SELECT created_at, xid::text::bigint FROM queue_message WHERE id = %s", ready)
    top = Position(xid, 0)
    await store.heartbeat("{}", Places(top, top, top))
    if not living:
        await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 h'")

    assert created == await queue.value("SELECT queue_message_oldest()")


async def test_what_waits_behind_a_key_is_counted_up_to_a_bound(queue: Queue) -> None:
    """A key with very many messages costs an operator's look no more than 10,000 of them."""
    await queue.insert(10_500, ordering_key="k")
    await queue.sql("SELECT queue_message_key_park('k')")
    assert 10_000 == await queue.value("SELECT behind FROM queue_message_blocked_key")


async def test_statistics_of_an_empty_queue_make_no_head_dear(queue: Queue) -> None:
    """A first flood of keys, before autovacuum has seen it, costs a look no more than some pages a key."""
    keys = """INSERT INTO queue_message (exchange, ordering_key, available_at)
        SELECT 'e', 'k' || n, now() + interval '1 h' FROM generate_series(1, 3000) n"""
    await queue.sql("ALTER TABLE queue_message SET (autovacuum_enabled = off)")
    async with unchecked(queue):
        await queue.sql(keys)
        await queue.sql("DELETE FROM queue_message")
        await queue.sql("ANALYZE queue_message")
        await queue.sql(keys)

    assert await pages(queue, "SELECT count(*) FROM queue_message_waiting_heads()") < 3000 * 20
    assert 3000 == await queue.value("SELECT blocked_keys FROM queue_message_status")


@pytest.mark.parametrize("failed", [False, True])
async def test_a_key_is_looked_at_once_however_many_of_its_messages_wait(queue: Queue, *, failed: bool) -> None:
    """A look at its head passes all that an open snapshot keeps of the key. While the head is sent, the key is not blocked."""
    await queue.sql("ALTER TABLE queue_message SET (autovacuum_enabled = off)")
    async with await psycopg.AsyncConnection.connect(queue.url) as other, unchecked(queue):
        await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT 1 FROM queue_message")
        await queue.sql("INSERT INTO queue_message (exchange, ordering_key) SELECT 'e', 'k' FROM generate_series(1, 5000)")
        await queue.sql("DELETE FROM queue_message")
        await queue.sql("""INSERT INTO queue_message (exchange, ordering_key, available_at)
            SELECT 'e', 'k', now() + interval '1 h' FROM generate_series(1, 3000) n""")
        await queue.sql("UPDATE queue_message SET last_error = CASE WHEN %s THEN 'nacked: no' END", failed)

        assert await pages(queue, "SELECT count(*) FROM queue_message_waiting_heads()") < 60_000
        assert ["k"] == [key for (key,) in await queue.sql("SELECT queue_message_waiting_heads()")]
        await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h'")
        assert [] == await queue.sql("SELECT queue_message_waiting_heads()")


async def test_a_sweep_goes_on_where_the_last_one_ended_and_begins_anew(queue: Queue) -> None:
    """An expired lock is found in any page, and again in the next round."""
    await resize(queue, "queue_message_sweep_minute", "100000", "10")
    await resize(queue, "queue_message_sweep_near", "LIMIT 10000)", "LIMIT 0)")
    ids = await queue.insert(25)
    await lock(queue, ids[22])

    assert [(0, 0), (0, 0), (1, 0)] == [await sweep(queue) for _ in range(3)]
    await lock(queue, ids[0])
    assert (1, 0) == await sweep(queue)


async def test_a_sweep_frees_so_many_at_once_and_the_next_one_the_others(queue: Queue) -> None:
    """Many expired locks in one page delay a relay's maintenance tasks no longer than a few do."""
    await resize(queue, "queue_message_sweep_minute", "10000;", "4;")
    ids = await queue.insert(10)
    await lock(queue, *ids)

    assert [(4, 0), (4, 0), (2, 0)] == [await sweep(queue) for _ in range(3)]


async def test_a_sweep_leaves_the_page_to_whoever_is_at_it(queue: Queue) -> None:
    """Two of them at once neither wait for each other nor walk the same messages."""
    await lock(queue, *await queue.insert())
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        cursor = await other.execute("SELECT released, archived FROM queue_message_sweep_minute()")
        assert [(1, 0)] == await cursor.fetchall()
        assert (0, 0) == await sweep(queue)


@pytest.mark.ids("A12")
async def test_a_dead_workers_locks_are_swept_in_the_minute_however_long_the_queue_is(queue: Queue, store: MadeStore) -> None:
    """By the database alone: what a silent relay holds above its lowest position does not wait for its page."""
    await resize(queue, "queue_message_sweep_minute", "100000", "10")
    await queue.insert(30)
    batch = await store.batch(limit=30)
    low = batch.claims[20].position
    await store.heartbeat("{}", Places(low, low, low))
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 h'")
    await lock(queue, batch.claims[25].id)

    assert (1, 0) == await sweep(queue)


async def test_expired_locks_are_freed_by_position(queue: Queue) -> None:
    """It frees exactly the locks that are named and expired, and whose rows no session holds."""
    free, over, other, living, held = ids = await queue.insert(5)
    await lock(queue, over, other, held)
    await lock(queue, living, seconds=60)
    rows = [await queue.row(id_) for id_ in ids if id_ != other]
    named = [[str(row["xid"]) for row in rows], [row["seq"] for row in rows]]
    await queue.sql("SET lock_timeout = '2s'")
    async with await psycopg.AsyncConnection.connect(queue.url) as application:
        await application.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [held])
        statement = "SELECT released, archived FROM queue_message_free_expired(%s::text[]::xid8[], %s::bigint[])"
        assert [(1, 0)] == await queue.sql(statement, *named)

    locked = await queue.sql("SELECT id::text FROM queue_message WHERE lock_expires_at IS NOT NULL ORDER BY seq")
    assert [(other,), (living,), (held,)] == locked
    assert free not in {id_ for (id_,) in locked}


async def test_what_cannot_be_printed_is_found_behind_more_than_one_look(queue: Queue) -> None:
    """Behind messages that wait for their time; each call looks at the next ones."""
    await queue.sql(DELAYED, 0, 12)
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message (exchange, content) SELECT 'e', jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000)"
        )
    assert [0, 0, 1] == [await queue.value("SELECT queue_message_reject_unprintable(5)") for _ in range(3)]


async def test_waiting_messages_behind_many_that_are_delayed_are_told_again(queue: Queue) -> None:
    """Page by page, and from the beginning after the last."""
    await resize(queue, "queue_message_renotify", "50000", "5")
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    await queue.sql(DELAYED, 0, 12)
    await queue.insert(2)
    again = [await queue.value("SELECT queue_message_renotify()") for _ in range(6)]
    assert [0, 0, 2, 0, 0, 2] == again


async def test_dead_messages_that_were_acknowledged_are_not_counted(queue: Queue) -> None:
    """However many there are: the look goes through the newest ones by index."""
    archive = """INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result)
        SELECT pg_current_xact_id(), n, gen_random_uuid(), 'e', '', '{}', '{}', now(), 1, 'failed' FROM generate_series(1, %s) n"""
    await queue.sql("SET client_min_messages = error")
    await queue.sql(archive, 25_000)
    await queue.sql("INSERT INTO queue_message_dead_ack (xid, seq) SELECT xid, seq FROM queue_message_dead")
    await queue.sql("ANALYZE queue_message_dead, queue_message_dead_ack")
    short = await pages(queue, "SELECT queue_message_dead_open()")
    await queue.sql(archive, 25_000)
    await queue.sql("INSERT INTO queue_message_dead_ack (xid, seq) SELECT xid, seq FROM queue_message_dead ON CONFLICT DO NOTHING")
    await queue.sql("ANALYZE queue_message_dead, queue_message_dead_ack")

    assert 0 == await queue.value("SELECT dead_unacknowledged FROM queue_message_status")
    assert await pages(queue, "SELECT queue_message_dead_open()") < GROWTH * short
    await queue.sql(archive, 3)
    assert 3 == await queue.value("SELECT dead_unacknowledged FROM queue_message_status")


async def test_gauges_are_read_by_a_relay(queue: Queue, upkeep: PostgresMaintenance) -> None:
    """With the names that metrics have."""
    await queue.insert(2, content=json.dumps({}))
    gauges: dict[str, Any] = dict(await upkeep.read_gauges())
    assert (2, 0, 0, 0) == tuple(gauges[name] for name in ("ready", "delayed", "suspects", "dead_unacknowledged"))
