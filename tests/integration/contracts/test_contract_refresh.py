"""How relays hear of contracts: with the policy, and only when something about them has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import psycopg
import pytest

from relay.contracts.patterns import matches
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.broker.topology import Topology
from tests.support.database.queue import MadeStore, Queue, until

pytestmark = pytest.mark.ids("A37")
CHANGES = [
    "SELECT queue_message_contract_add('orders', '#', 'true')",
    "SELECT queue_message_contract_mode('orders', '#', 'enforce')",
    "SELECT queue_message_contract_add('orders', '#', 'false')",
    "SELECT queue_message_contract_remove('orders', '#', 1); SELECT queue_message_contract_add('orders', '#', 'true', 1)",
    "SELECT queue_message_contract_remove('orders', '#', NULL)",
]


def noting(told: list[list[tuple[Any, ...]]]) -> Callable[[list[tuple[Any, ...]]], Awaitable[None]]:
    """Takes contracts and keeps them."""

    async def note(rows: list[tuple[Any, ...]]) -> None:
        told.append(rows)

    return note


async def refresh(upkeep: PostgresMaintenance) -> None:
    """Read the policy, and the contracts if it has others."""
    await upkeep.refresh_policy()
    await upkeep.refresh_contracts()


async def test_a_policy_does_not_wait_until_contracts_are_compiled(queue: Queue, store: MadeStore) -> None:
    """Heartbeats, lanes and pauses come with it, and to compile may take a minute."""
    for_ever = asyncio.Event()

    async def compile_for_ever(_: object) -> None:
        await for_ever.wait()

    upkeep = PostgresMaintenance(store=store, needs=1, adopt=lambda _policy, _settings: None, contracts=compile_for_ever)
    await queue.sql(CHANGES[0])
    async with asyncio.timeout(10):
        await upkeep.refresh_policy()
        compiling = asyncio.create_task(upkeep.refresh_contracts())
        await queue.sql("SELECT queue_message_pause('orders', 'broken')")
        assert ["orders"] == (await upkeep.refresh_policy()).paused

    assert not compiling.done()
    compiling.cancel()


async def test_contracts_are_read_when_they_changed_and_not_otherwise(queue: Queue, store: MadeStore) -> None:
    """Each change is read once. Without a change, and between changes, only the policy is read."""
    told: list[list[tuple[Any, ...]]] = []
    upkeep = PostgresMaintenance(store=store, needs=1, adopt=lambda _policy, _settings: None, contracts=noting(told))
    await refresh(upkeep)
    assert [] == told

    for number, change in enumerate(CHANGES, start=1):
        await queue.sql(change)
        await refresh(upkeep)
        await refresh(upkeep)
        assert number == len(told), change

    assert [("orders", "#", 1, "warn", "true")] == told[0]
    assert [("orders", "#", 1, "enforce", "true"), ("orders", "#", 2, "warn", "false")] == told[2]
    assert [] == told[-1]


async def test_versions_that_hold_for_nothing_are_not_read(queue: Queue, store: MadeStore) -> None:
    """Of a contract with fifty versions two: the newest that is enforced, and the newest on trial."""
    told: list[list[tuple[Any, ...]]] = []
    for number in range(50):
        mode = "enforce" if number < 25 else "warn"
        await queue.sql(f"SELECT queue_message_contract_add('orders', '#', '{{\"maximum\": {number}}}', NULL, '{mode}')")
    await refresh(PostgresMaintenance(store=store, needs=1, adopt=lambda _policy, _settings: None, contracts=noting(told)))

    assert [[(25, "enforce"), (50, "warn")]] == [[(row[2], row[3]) for row in rows] for rows in told]


async def test_a_change_that_commits_late_is_heard_too(queue: Queue, store: MadeStore, database_url: str) -> None:
    """Begun before another one that was read meanwhile: no number that only rises could tell."""
    told: list[list[tuple[Any, ...]]] = []
    upkeep = PostgresMaintenance(store=store, needs=1, adopt=lambda _policy, _settings: None, contracts=noting(told))
    await queue.sql("SELECT queue_message_contract_add('orders', 'a', 'true'), queue_message_contract_add('orders', 'b', 'true')")
    async with await psycopg.AsyncConnection.connect(database_url) as slow:
        await slow.execute("SELECT queue_message_contract_mode('orders', 'a', 'enforce')")
        await queue.sql("SELECT queue_message_contract_mode('orders', 'b', 'enforce')")
        await refresh(upkeep)
        await slow.commit()
    await refresh(upkeep)

    assert [{"b": "enforce", "a": "warn"}, {"a": "enforce", "b": "enforce"}] == [{row[1]: row[3] for row in rows} for rows in told]


async def test_two_who_add_at_once_get_two_numbers(queue: Queue, database_url: str) -> None:
    """Neither is refused, and a relay that reads meanwhile does not wait."""
    async with await psycopg.AsyncConnection.connect(database_url) as first, await psycopg.AsyncConnection.connect(database_url) as second:
        statement = "SELECT added FROM queue_message_contract_add('orders', '#', %s)"
        assert (1,) == await (await first.execute(statement, ["true"])).fetchone()
        waiting = asyncio.create_task(second.execute(statement, ["false"]))
        await until(queue.is_held_up)
        assert [] == await queue.sql("SELECT * FROM queue_message_contract")
        await first.commit()
        assert (2,) == await (await waiting).fetchone()


@pytest.mark.parametrize("pattern", ["order.*", "order.#", "#.late", "*.*", "#", "a..b", "a.*.b", "order*", "*", "#.#", ""])
async def test_a_pattern_means_what_it_means_to_the_broker(topology: Topology, pattern: str) -> None:
    """A queue that is bound with it to a topic exchange gets the keys that match, and no other."""
    keys = ["order", "order.paid", "order.paid.late", "late", "a..b", "a.", ".", "", "orders", "order*"]
    place = await topology.declare(kind="topic", routing_key=pattern)
    exchange = await topology._channel.get_exchange(place.exchange)

    for key in keys:
        await exchange.publish(aio_pika.Message(key.encode()), routing_key=key, mandatory=False)

    assert [key for key in keys if matches(pattern, key)] == [message.body.decode() for message in await topology.drain(place.queue)]


async def test_no_version_leaves_a_contract_without_a_next_one(queue: Queue) -> None:
    """A number may be at most 1,000 above the newest one, and the last one of all says what to do."""
    add = "SELECT added FROM queue_message_contract_add('orders', '#', to_jsonb(%s > 0), %s)"
    for version in (0, -1, 1001, 1_000_000, 2**31 - 1):
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^A version of this contract must be from 1 to 1000, at most"):
            await queue.sql(add, 1, version)
    assert 1000 == await queue.value(add, 1, 1000)
    assert 1001 == await queue.value(add, 0, None)
    assert 7 == await queue.value(add, 1, 7)
