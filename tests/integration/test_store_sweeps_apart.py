"""What a dead relay held far above the heads of the living: waiting and ordered messages behind a long backlog, in tables of any size."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from relay.message import Position
from relay.ports import Due
from relay.postgres.database import ALWAYS
from relay.postgres.upkeep import Upkeep
from tests.support.plans import PAD, explain
from tests.support.queue import MadeStore, MakeStore, Queue, ids_of, until

LOW = Position(1, 0)
"""The head of a relay that has hardly begun."""
BACKLOG = 50_000
FEW_PAGES = 1000
"""Of the backlog's 5,556. Measured: 1 while everybody lives; 455 at first and 85 later for a dead relay that holds two messages above it;
5,807 where the backlog is walked."""
WIDE = "jsonb_build_object('pad', repeat('x', 1900))"
"""A page holds one or two."""
LOCK_SECONDS = 30


async def fill(queue: Queue, count: int = BACKLOG, content: str = "'{}'") -> None:
    """An unordered backlog."""
    await queue.sql(f"INSERT INTO queue_message (exchange, content) SELECT 'orders', {content} FROM generate_series(1, {count})")


async def hold_above(queue: Queue, make_store: MakeStore) -> tuple[MadeStore, list[str]]:
    """A relay that holds a message that waited and the head of a key, above what is there; and their ids."""
    relay = make_store("dead")
    await relay.register()
    lanes = await relay.keep_lanes()
    mine = "SELECT min(key::text) FROM generate_series(1, 1000) AS key WHERE queue_message_lane_of(key::text) = ANY(%s)"
    key = await queue.value(mine, list(lanes))
    [waited], [head] = await queue.insert(available_at="2020-01-01T00:00:00Z"), await queue.insert(ordering_key=key)
    assert [waited] == await relay.ids(Due.WAITING)
    assert [head] == ids_of((await relay.claim_heads(key, lanes=lanes)).batch)
    return relay, [waited, head]


async def die(queue: Queue, relay: MadeStore, seconds: float = LOCK_SECONDS + 1) -> None:
    """Let the relay have been silent for so long, and its locks have expired."""
    await queue.sql(
        "UPDATE queue_message_relay SET heartbeat_at = now() - make_interval(secs => %s) WHERE id = %s", seconds, relay.relay_id
    )
    await queue.expire()


async def locked(queue: Queue) -> list[str]:
    """Ids under a lock."""
    return [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message WHERE lock_expires_at IS NOT NULL ORDER BY xid, seq")]


@pytest.mark.ids("A12", "B9")
async def test_what_a_dead_relay_held_above_every_head_is_free_within_the_lock_time(
    queue: Queue, make_store: MakeStore, upkeep: Upkeep
) -> None:
    """A long backlog stands before it, which the head of the living relay has not passed."""
    await fill(queue, 100)
    relay, held = await hold_above(queue, make_store)
    await die(queue, relay, seconds=LOCK_SECONDS - 1)
    assert (0, 0) == await upkeep.sweep_silent(LOW)
    assert held == await locked(queue)

    await die(queue, relay)
    assert (2, 0) == await upkeep.sweep_silent(LOW)
    assert [] == await locked(queue)


async def test_what_a_living_relay_holds_above_every_head_is_left_alone(
    queue: Queue, make_store: MakeStore, store: MadeStore, upkeep: Upkeep
) -> None:
    """Locks of the living, while one is dead, and locks that still hold."""
    relay, held = await hold_above(queue, make_store)
    mine = await queue.insert(available_at="2020-01-01T00:00:00Z")
    assert mine == await store.ids(Due.WAITING)
    await queue.expire()
    assert (0, 0) == await upkeep.sweep_silent(LOW)

    await die(queue, relay)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE locked_by = %s", relay.relay_id)
    assert (0, 0) == await upkeep.sweep_silent(LOW)
    assert [*held, *mine] == await locked(queue)


async def test_the_sweep_of_silent_relays_walks_no_backlog(
    queue: Queue, make_store: MakeStore, store: MadeStore, database_url: str
) -> None:
    """Neither while everybody lives nor for a dead relay, with and without statistics, nor what was settled while a snapshot is held."""
    await fill(queue, content=PAD)
    relay, held = await hold_above(queue, make_store)
    values = {
        "own": None, "silence": 6.0, "forgotten": 3600.0, "lock_seconds": float(LOCK_SECONDS), "apart": 15.0, "below_xid": "1", "now": None
    }  # fmt: skip
    async with await psycopg.AsyncConnection.connect(database_url) as reader:
        await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM queue_message")
        for statistics in ("SELECT", "VACUUM ANALYZE queue_message", "DELETE FROM queue_message WHERE lock_expires_at IS NULL"):
            await queue.sql(statistics)
            await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now()")
            living = await explain(queue.connection, store._statements["sweep_silent"], values, settings=ALWAYS)
            await die(queue, relay)
            dead = await explain(queue.connection, store._statements["sweep_silent"], values, settings=ALWAYS)

            assert living.pages <= FEW_PAGES, statistics
            assert dead.pages <= FEW_PAGES, statistics
    assert held == await locked(queue)


async def test_the_sweep_of_the_minute_frees_what_a_relay_held_that_died_long_ago(queue: Queue, make_store: MakeStore) -> None:
    """In a large table it looks no higher than a head has come, and apart from that for what silent relays held."""
    await fill(queue, 9000, WIDE)
    relay, _ = await hold_above(queue, make_store)
    await die(queue, relay, seconds=LOCK_SECONDS + 600)

    assert [(2, 0)] == await queue.sql(HALF_PAST)
    assert [] == await locked(queue)


HALF_PAST = "SELECT released, archived FROM queue_message_sweep_minute(date_trunc('hour', now()) + interval '90 min')"
"""A moment to come that is no full hour: then a large table is swept whole."""


async def test_a_held_stream_hides_no_lock_from_the_sweep_of_the_minute(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """A lock set by hand above the place where a paused exchange stands still, in a large table."""
    [low] = await queue.insert(exchange="audit")
    await fill(queue, 18_000, WIDE)
    [by_hand] = await queue.insert()
    await queue.insert()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s' WHERE id = %s", by_hand)
    below, above = [Position(int((await queue.row(id_))["xid"]), 1 << 40) for id_ in (low, by_hand)]
    await upkeep.heartbeat(low=below, head=below, top=above, state={})

    assert [(1, 0)] == await queue.sql(HALF_PAST)


async def test_a_claim_just_before_a_heartbeat_is_not_lost_sight_of(
    queue: Queue, store: MadeStore, upkeep: Upkeep, database_url: str
) -> None:
    """The report was made before the claim was in hand; a relay that dies then is swept from the claim's position on all the same."""
    [waited] = await queue.insert(available_at="2020-01-01T00:00:00Z")
    position = Position(int((await queue.row(waited))["xid"]), 0)
    above = Position(position.xid + 1, 0)
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE queue_message")
        claiming = asyncio.create_task(store.ids(Due.WAITING))
        await until(queue.is_held_up)
        beating = asyncio.create_task(upkeep.heartbeat(low=above, head=above, top=above, state={}))
        await asyncio.sleep(0)  # a turn of the loop, in which the report is made; its statement waits behind the claim
        await other.rollback()
    assert [waited] == await claiming
    await beating

    assert position < await low_of(queue, store) < above
    await upkeep.heartbeat(low=above, head=above, top=above, state={})
    assert above == await low_of(queue, store)


async def low_of(queue: Queue, store: MadeStore) -> Position:
    """How low the relay says that it may hold locks."""
    [(xid, seq)] = await queue.sql("SELECT low_xid::text::bigint, low_seq FROM queue_message_relay WHERE id = %s", store.relay_id)
    return Position(xid, seq)
