"""What a publisher does when connection or broker fail, shown on RabbitMQ and on both brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest

from relay.devservers.rabbitmq import RabbitMQ
from relay.events.broker import BrokerBlocked, BrokerUnblocked, BrokerUp
from relay.message import CONFIRMED, Claim, PublishResult, Verdict
from relay.testing.fake_broker.broker import Broker as DoubleBroker
from tests.support.broker.double_broker import Double
from tests.support.broker.memory_broker import in_memory
from tests.support.broker.publishing import Publishing, claim, publishing
from tests.support.broker.topology import Topology
from tests.support.database.queue import until
from tests.support.network.proxy import Proxy

ALARM_ON, ALARM_OFF = ("set_vm_memory_high_watermark", "0.0000001"), ("set_vm_memory_high_watermark", "absolute", "2GB")


class Broker(Protocol):
    """A broker with a publisher on it, and what befalls them."""

    @property
    def publisher(self) -> Publishing:
        """What sends to it."""

    async def exchange(self) -> Callable[[], Claim]:
        """Declare an exchange with a queue; return what makes messages for it."""

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """Publish a batch; return the results."""

    def hushed(self) -> AbstractAsyncContextManager[None]:
        """What is published meanwhile is not confirmed."""

    async def drop(self) -> None:
        """End the connection."""

    def alarm(self) -> AbstractAsyncContextManager[None]:
        """The broker blocks who publishes meanwhile."""


async def drops(broker: Broker) -> None:
    """When the connection is lost, unconfirmed messages are unknown, and none is at fault; the next connection takes later messages."""
    make = await broker.exchange()
    assert [CONFIRMED] == await broker.send([make()])
    async with broker.hushed(), asyncio.TaskGroup() as tasks:
        sent = tasks.create_task(broker.send([make() for _ in range(10)]))
        await until(lambda: sum(broker.publisher.publisher.in_flight().values()) == 10)
        await broker.drop()
        assert {(Verdict.UNKNOWN, False)} == {(result.verdict, result.blame) for result in await sent}
    await broker.publisher.seen.wait_for(BrokerUp, 2)
    assert [CONFIRMED] * 5 == await broker.send([make() for _ in range(5)])


async def held(broker: Broker, make: Callable[[], Claim], size: int, tasks: asyncio.TaskGroup) -> asyncio.Task[list[PublishResult]]:
    """The first batch that an alarm holds up. Batches that the broker took before it told its connections are confirmed."""
    while True:
        sent = tasks.create_task(broker.send([make() for _ in range(size)]))
        done, _ = await asyncio.wait({sent}, timeout=0.3)
        if not done:
            return sent


async def blocked(broker: Broker) -> None:
    """Under an alarm nothing is confirmed and nothing refused; then all of it goes out on the same connection."""
    make = await broker.exchange()
    assert [CONFIRMED] == await broker.send([make()])
    async with asyncio.TaskGroup() as tasks:
        async with broker.alarm():
            sent = await held(broker, make, 10, tasks)
            await broker.publisher.seen.wait_for(BrokerBlocked)
            assert not broker.publisher.publisher.ready
            assert not sent.done()
        assert [CONFIRMED] * 10 == await sent
    assert 1 == len(broker.publisher.seen.of(BrokerUp))


async def drops_blocked(broker: Broker) -> None:
    """A connection that ends is blocked no more: what the next one hears of the alarm is its own."""
    make = await broker.exchange()
    async with broker.alarm(), asyncio.TaskGroup() as tasks:
        sent = await held(broker, make, 1, tasks)
        await broker.publisher.seen.wait_for(BrokerBlocked)
        await broker.drop()
        await broker.publisher.seen.wait_for(BrokerUnblocked, seconds=5)
        assert [Verdict.UNKNOWN] == [result.verdict for result in await sent]


CASES = pytest.mark.parametrize("case", [drops, blocked, drops_blocked], ids=lambda case: case.__name__)
Case = Callable[[Broker], Awaitable[None]]


class Rabbit:
    """RabbitMQ, behind a proxy."""

    def __init__(self, publisher: Publishing, topology: Topology, proxy: Proxy, node: RabbitMQ) -> None:
        self._publisher = publisher
        self._topology = topology
        self._proxy = proxy
        self._node = node

    @property
    def publisher(self) -> Publishing:
        """See `Broker`."""
        return self._publisher

    async def exchange(self) -> Callable[[], Claim]:
        """See `Broker`."""
        made = await self._topology.declare()
        return lambda: claim(made.exchange, made.routing_key)

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """See `Broker`."""
        return await self.publisher.send(claims)

    @asynccontextmanager
    async def hushed(self) -> AsyncIterator[None]:
        """See `Broker`."""
        self._proxy.hold_answers()
        yield
        self._proxy.heal()

    async def drop(self) -> None:
        """See `Broker`."""
        self._proxy.reset()
        self._proxy.heal()

    @asynccontextmanager
    async def alarm(self) -> AsyncIterator[None]:
        """See `Broker`."""
        await asyncio.to_thread(self._node.ctl, *ALARM_ON)
        try:
            yield
        finally:
            await asyncio.to_thread(self._node.ctl, *ALARM_OFF)


@CASES
async def test_on_rabbitmq(case: Case, own_broker: RabbitMQ, own_topology: Topology) -> None:
    """The broker itself."""
    async with Proxy.before(own_broker.url) as proxy, publishing(proxy.url(own_broker.url)) as publisher:
        await case(Rabbit(publisher, own_topology, proxy, own_broker))


@CASES
async def test_on_the_double_of_applications(case: Case, unique: str) -> None:
    """What applications test with."""
    with DoubleBroker() as broker:
        async with publishing(broker.url) as publisher:
            await case(Double(broker, publisher, unique))


@CASES
def test_in_memory(case: Case) -> None:
    """The same case on the brokers in memory."""
    in_memory(case)
