"""Messages in order per key: lanes, their owners, and heads of keys."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from relay.claims.lanes import Lanes
from relay.message import Batch, Retry
from tests.support.database.claimers import Claimer, row_held
from tests.support.database.queue import PLENTY, MadeStore, MakeStore, Queue, ids_of, until

FOR_NOW = Retry(0.0, "nack", "No.")
LANES = 64
LATER = Retry(600.0, "nack", "No.")


async def claim(lanes: Lanes, *, limit: int = 100) -> Batch | None:
    """Claim from what is ready."""
    return await lanes.claim(limit=limit, limit_bytes=PLENTY, paused=[])


@pytest.fixture
def lanes(claimer: Claimer) -> Lanes:
    """All lanes, owned by the only relay."""
    return claimer.intake.lanes


async def test_a_claimed_head_carries_the_lane_that_the_database_gives_its_key(queue: Queue, lanes: Lanes) -> None:
    """Whatever its characters: a lane that anybody computed otherwise would leave keys without an owner."""
    keys = ["", "a", "order-1", "schlüssel", "鍵", "x" * 1024]
    for key in keys:
        await queue.insert(ordering_key=key)

    heads = await claim(lanes)

    assert heads is not None
    expected: dict[str, int] = dict(await queue.sql("SELECT key, queue_message_lane_of(key)::int FROM unnest(%s::text[]) AS key", keys))
    assert expected == {head.ordering_key: head.lane for head in heads.claims}
    assert LANES == await queue.value("SELECT count(*) FROM queue_message_lane")


async def test_the_first_relay_owns_every_lane(lanes: Lanes) -> None:
    """Alone it may take all of them at once."""
    assert [*range(LANES)] == sorted(lanes.owned)


async def test_two_relays_share_the_lanes(make_store: MakeStore, queue: Queue) -> None:
    """The first gives up what is above its fair share, the second takes it; no lane has two owners or none."""
    one, two = make_store("one"), make_store("two")
    await one.register()
    assert LANES == len(await one.keep_lanes())
    await two.register()
    assert {} == await two.keep_lanes()

    first = await one.keep_lanes()
    second = await two.keep_lanes()

    assert LANES // 2 == len(first) == len(second)
    assert {*range(LANES)} == {*first} | {*second}
    assert [(one.relay_id, 32), (two.relay_id, 32)] == await queue.sql(
        "SELECT owner, count(*) FROM queue_message_lane GROUP BY 1 ORDER BY 1"
    )


async def test_a_takeover_raises_the_epoch_and_shuts_the_former_owner_out(queue: Queue, make_store: MakeStore) -> None:
    """A relay that lost its lanes claims nothing in them, even while it still believes that it owns them."""
    one, two = make_store("one"), make_store("two")
    await one.register()
    former = await one.keep_lanes()
    [id_] = await queue.insert(ordering_key="k")
    await queue.sql("UPDATE queue_message_lane SET lease_expires_at = now() - interval '1 s'")
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '10 min'")
    await two.register()

    owner = await two.keep_lanes()

    assert (LANES, LANES) == (len(owner), sum(owner.values()) - sum(former.values()))
    assert (await one.claim_heads("k", lanes=former)).batch is None
    assert {} == await one.keep_lanes()
    assert [id_] == ids_of((await two.claim_heads("k", lanes=owner)).batch)


async def test_a_claim_and_a_takeover_at_once_let_one_owner_in(queue: Queue, store: MadeStore) -> None:
    """The lane's row is locked and its epoch checked on the locked version: a takeover under way is waited for, then believed."""
    mine = await store.keep_lanes()
    await queue.insert(ordering_key="k")
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("UPDATE queue_message_lane SET owner = 99, epoch = epoch + 1 WHERE lane = queue_message_lane_of('k')")
        claiming = asyncio.create_task(store.claim_heads("k", lanes=mine))
        await until(queue.is_held_up)
        assert not claiming.done()
        await other.commit()

    assert (await claiming).batch is None


async def test_one_message_of_a_key_is_in_flight(queue: Queue, claimer: Claimer, lanes: Lanes) -> None:
    """The successor is claimed when the head was settled, and not before; other keys do not wait."""
    first, second, third = await queue.insert(3, ordering_key="k")
    [other] = await queue.insert(ordering_key="l")

    heads = await claim(lanes)
    assert heads is not None
    assert [first, other] == ids_of(heads)
    assert await claim(lanes) is None

    for expected in (second, third):
        await claimer.settle(heads)
        heads = await claim(lanes)
        assert heads is not None
        assert [expected] == ids_of(heads)


async def test_a_waiting_head_blocks_its_key_and_no_other(queue: Queue, claimer: Claimer, lanes: Lanes) -> None:
    """Whether it waits for another attempt or for its own time, only its key waits with it."""
    await queue.insert(2, ordering_key="retry")
    await queue.insert(ordering_key="delayed", available_at="2999-01-01T00:00:00Z")
    await queue.insert(ordering_key="delayed")
    heads = await claim(lanes)
    assert heads is not None
    assert ["retry"] == [each.ordering_key for each in heads.claims]
    await claimer.settle(heads, LATER)
    [free] = await queue.insert(ordering_key="free")

    assert [free] == await claimer.found()


async def test_a_head_whose_wait_is_over_goes_first(queue: Queue, claimer: Claimer, lanes: Lanes) -> None:
    """A retried head comes again before its successor."""
    first, second = await queue.insert(2, ordering_key="k")
    head = await claim(lanes)
    assert head is not None
    await claimer.settle(head, FOR_NOW)

    found = []
    async for again in claimer.batches():
        found.append(ids_of(again))
        await claimer.settle(again)
    assert [[first], [second]] == found


async def test_a_parked_key_is_left_alone_until_it_is_resumed(queue: Queue, claimer: Claimer) -> None:
    """An operator's hold keeps a key's head in the queue; resuming makes it due."""
    [id_] = await queue.insert(ordering_key="k")
    await queue.sql("SELECT queue_message_key_park('k', 'wait')")
    assert [] == await claimer.found()

    await queue.sql("SELECT queue_message_key_resume('k')")

    assert [id_] == await claimer.ids()


async def test_a_key_that_commits_late_is_found_below_the_head(queue: Queue, lanes: Lanes) -> None:
    """A transaction that began before the lanes' head passed it is asked for until it has ended."""
    async with await psycopg.AsyncConnection.connect(queue.url) as early:
        cursor = await early.execute("INSERT INTO queue_message (exchange, ordering_key) VALUES ('orders', 'early') RETURNING id::text")
        [late] = await cursor.fetchone() or [""]
        [id_] = await queue.insert(ordering_key="k")
        assert [id_] == ids_of(await claim(lanes))
        await early.commit()

    assert [late] == ids_of(await claim(lanes))


async def test_a_lane_given_up_is_looked_at_from_the_left_by_its_new_owner(queue: Queue, make_store: MakeStore) -> None:
    """Successors that the former owner had in mind are found again."""
    one, two = [Claimer(make_store(name)) for name in ("one", "two")]
    await one.store.register()
    _, second = await queue.insert(2, ordering_key="k")
    await one.intake.keep_lanes()
    head = await claim(one.intake.lanes)
    assert head is not None
    await one.settle(head)
    await one.store.unregister(holds_locks=False)
    await two.store.register()
    await two.intake.keep_lanes()

    assert [second] == ids_of(await claim(two.intake.lanes))


async def test_a_head_that_an_application_has_locked_holds_up_its_key_alone(queue: Queue, lanes: Lanes) -> None:
    """It is stepped over and claimed at the next look after the lock has gone; its successor is not claimed in its place."""
    [first, _] = await queue.insert(2, ordering_key="k")
    [other] = await queue.insert(ordering_key="l")
    async with row_held(queue, first):
        assert [other] == ids_of(await claim(lanes))
        assert await claim(lanes) is None

    assert [first] == ids_of(await claim(lanes))


async def test_very_many_heads_that_an_application_has_locked_hold_up_no_other_key(queue: Queue, claimer: Claimer) -> None:
    """There are more than one query asks for. A new key of another exchange is found, and the next round finds released heads."""
    await queue.sql("INSERT INTO queue_message (exchange, ordering_key) SELECT 'orders', n::text FROM generate_series(1, 20500) AS n")
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message FOR UPDATE")
        assert [] == await claimer.found(500)
        await claimer.round()
        [new] = await queue.insert(exchange="audit", ordering_key="new")
        assert [new] == await claimer.ids(500)
        await other.rollback()

    assert await claimer.found(500)


async def test_transactions_that_lock_the_row_of_their_key_first_go_in_the_order_of_their_commits(queue: Queue) -> None:
    """As docs/options.md says: the second one begins to write when the first one has ended."""
    await queue.sql("CREATE TABLE customer (id int PRIMARY KEY); INSERT INTO customer VALUES (1)")
    lock, insert = "SELECT FROM customer WHERE id = 1 FOR UPDATE", "INSERT INTO queue_message (exchange, ordering_key) VALUES (%s, 'c')"
    connect = psycopg.AsyncConnection.connect
    async with await connect(queue.url) as first, await connect(queue.url) as second, asyncio.TaskGroup() as group:
        await first.execute(lock)
        waits = group.create_task(second.execute(lock))
        await until(lambda: _waits_for_a_lock(queue))
        await first.execute(insert, ("first",))
        await first.commit()
        await waits
        await second.execute(insert, ("second",))
        await second.commit()

    rows = await queue.sql("SELECT exchange FROM queue_message ORDER BY xid, seq")
    assert [("first",), ("second",)] == rows


async def _waits_for_a_lock(queue: Queue) -> bool:
    return bool(
        await queue.value("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
    )
