"""Claims of several relays take turns, and none hangs on its turn."""

from __future__ import annotations

import asyncio

import psycopg

from tests.support.queue import MadeStore, MakeStore, Queue, until
from tests.support.statements import Tap

TAKE = b"SELECT queue_message_claim_turn()"


async def in_company(make_store: MakeStore) -> MadeStore:
    """A store that knows of another relay."""
    store, other = make_store("one"), make_store("other")
    for each in (store, other):
        await each.register()
        await each.keep_lanes()
    await store.keep_lanes()
    return store


async def test_a_claim_waits_for_that_of_another_relay_and_finds_what_it_left(queue: Queue, make_store: MakeStore) -> None:
    """A claim at the same time would look at each message of the other and find it taken."""
    first, second = await queue.insert(2)
    store = await in_company(make_store)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute(TAKE)
        await other.execute("DELETE FROM queue_message WHERE id = %s", [first])
        claim = asyncio.create_task(store.ids())
        await until(lambda: queue.is_held_up("outbox-relay/one claim"))

    assert [second] == await claim


async def test_a_claim_goes_on_without_its_turn_when_that_does_not_come(queue: Queue, make_store: MakeStore) -> None:
    """A relay that the network has lost in the middle of a claim holds up nobody."""
    ids = await queue.insert(2)
    store = await in_company(make_store)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute(TAKE)

        assert ids == await store.ids()


async def test_each_claim_gives_its_turn_back(queue: Queue, make_store: MakeStore) -> None:
    """With its own commit, whether it found something or not."""
    await queue.insert(1)
    store = await in_company(make_store)
    for found in (1, 0):
        assert found == len(await store.ids())
        assert 0 == await queue.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 724017726")


async def test_a_relay_takes_turns_only_while_it_has_company(queue: Queue, make_store: MakeStore) -> None:
    """Alone a claim is one statement."""
    async with Tap.before(queue.url) as tap:
        store, other = make_store("one", url=tap.url(queue.url)), make_store("other")
        for each in (store, other):
            await each.register()
        turns = []
        for leave in (False, True):
            if leave:
                await other.unregister(holds_locks=False)
            await store.keep_lanes()
            await store.ids()
            turns.append(len(tap.of("claim_turn")))

    assert [1, 1] == turns
