"""One bad exchange among 500 good messages: the good ones arrive, all of them, once; the bad ones end with a reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest

from relay import devservers
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.private import user_of

GOOD = 500
CHUNKS = 10
"""Transactions, so that several batches are in flight."""
Start = Callable[[str], Awaitable[RelayProcess]]
Put = Callable[[Queue, list[Declared], str], Awaitable[list[str]]]


class Outcome(NamedTuple):
    """What the archive says."""

    result: str
    code: str
    detail: str


@pytest.fixture
async def goods(own_topology: Topology, unique: str) -> list[Declared]:
    """Two good exchanges, each with its queue."""
    return [await own_topology.declare(f"{unique}.good{number}", f"{unique}.goods{number}") for number in range(2)]


@pytest.fixture
def limited_url(own_broker: devservers.RabbitMQ, unique: str) -> Iterator[str]:
    """URL of a user who may write to the good exchanges alone."""
    with user_of(own_broker, unique, may_write=f"{unique}\\.good.*") as url:
        yield url


@pytest.fixture
async def start(relays: Relays, queue: Queue) -> Start:
    """Starts a relay with default settings, but that two attempts are enough."""
    await relays.command("config", "set", "max_attempts", "2", database=queue.url)

    async def started(broker: str) -> RelayProcess:
        return await relays.start(database=queue.url, broker=broker)

    return started


async def insert(queue: Queue, goods: list[Declared], bad: str) -> list[str]:
    """Insert good and bad messages in turn, several batches full; return the ids of the good ones."""
    good: list[str] = []
    for number in range(CHUNKS):
        for made in goods:
            good += await queue.insert(GOOD // CHUNKS // len(goods), exchange=made.exchange, routing_key=made.routing_key)
            await queue.insert(5, exchange=bad, routing_key=f"key-{number}")
    return good


async def insert_at_once(queue: Queue, goods: list[Declared], bad: str) -> list[str]:
    """The same in one transaction."""
    async with queue.connection.transaction():
        return await insert(queue, goods, bad)


async def expect_each_once(topology: Topology, goods: list[Declared], ids: list[str]) -> None:
    """Each good message came once."""
    came = [message.message_id for made in goods for message in await topology.drain(made.queue)]
    assert dict.fromkeys(ids, 1) == Counter(came)


async def outcomes(queue: Queue, exchange: str) -> Counter[Outcome]:
    """Result, code and detail of the messages of one exchange."""
    columns = "result, coalesce(error_code, ''), coalesce(error_detail, '')"
    return Counter([Outcome(*row) for row in await queue.sql(f"SELECT {columns} FROM queue_message_archive WHERE exchange = %s", exchange)])


@pytest.mark.ids("A10", "C9", "C15", "D6")
@pytest.mark.parametrize("put", [insert, insert_at_once])
async def test_a_missing_exchange_harms_no_neighbour(
    start: Start, queue: Queue, own_broker: devservers.RabbitMQ, own_topology: Topology, goods: list[Declared], put: Put
) -> None:
    """500 of 500 arrive and none twice; the others fail after their attempts, and the sentence names the exchange."""
    relay = await start(own_broker.url)
    good = await put(queue, goods, "no.such.exchange")
    await queue.settled(seconds=40)

    await expect_each_once(own_topology, goods, good)
    sentence = "NOT_FOUND - no exchange 'no.such.exchange' in vhost '/' (attempt 2 of 2)"
    assert {Outcome("failed", "exchange_missing", sentence): 100} == await outcomes(queue, "no.such.exchange")
    assert 0 == await relay.stop()
    assert 1 == len(relay.of("broker_up"))


@pytest.mark.ids("C9", "C15")
async def test_an_exchange_deleted_in_the_middle_harms_no_neighbour(
    start: Start, queue: Queue, own_broker: devservers.RabbitMQ, own_topology: Topology, goods: list[Declared], unique: str
) -> None:
    """The others' 500 arrive and none twice; of the deleted one what was not confirmed before fails, with the reason."""
    doomed = await own_topology.declare(f"{unique}.doomed", f"{unique}.spare")
    relay = await start(own_broker.url)
    first = await queue.insert(100, exchange=doomed.exchange, routing_key=doomed.routing_key)
    await until(lambda: own_topology.has(doomed.queue, len(first)))
    inserting = asyncio.create_task(insert(queue, goods, doomed.exchange))
    await own_topology.delete_exchange(doomed.exchange)
    good = await inserting
    await queue.settled(seconds=40)

    await expect_each_once(own_topology, goods, good)
    results = await outcomes(queue, doomed.exchange)
    assert 200 == results.total()
    assert len(first) <= results[Outcome("success", "", "")] <= await own_topology.waiting(doomed.queue)
    assert {"exchange_missing"} == {outcome.code for outcome in results if outcome.result != "success"}
    assert 0 == await relay.stop()
    assert 1 == len(relay.of("broker_up"))


@pytest.mark.ids("C9", "C15")
async def test_an_exchange_without_permission_harms_no_neighbour(
    start: Start, queue: Queue, own_topology: Topology, goods: list[Declared], limited_url: str, unique: str
) -> None:
    """The exchange is there and the relay's user may not write to it: its messages fail, the others' 500 arrive and none twice."""
    barred = await own_topology.declare(f"{unique}.barred", f"{unique}.empty")
    relay = await start(limited_url)
    good = await insert(queue, goods, barred.exchange)
    await queue.settled(seconds=40)

    await expect_each_once(own_topology, goods, good)
    [(outcome, count)] = (await outcomes(queue, barred.exchange)).items()
    assert ("failed", "access_refused", 100) == (outcome.result, outcome.code, count)
    assert f"exchange '{barred.exchange}'" in outcome.detail
    assert f"user '{unique}'" in outcome.detail
    assert 0 == await relay.stop()
    assert 1 == len(relay.of("broker_up"))
