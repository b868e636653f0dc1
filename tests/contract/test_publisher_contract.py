"""What a broker says to the publisher, shown on RabbitMQ, on the broker of relay.testing, and on the simulations': the same cases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import pytest

from relay.message import Claim, PublishResult, Verdict
from relay.testing.fake_broker.broker import Broker as DoubleBroker
from tests.simulation.broker import NOWHERE
from tests.support.broker.double_broker import Double
from tests.support.broker.memory_broker import FORBIDDEN, in_memory
from tests.support.broker.publishing import Publishing, claim, publishing
from tests.support.servers.shared import Declare, Drain


class Broker(Protocol):
    """A broker with a publisher on it."""

    async def exchange(self, *, full: bool = False) -> Callable[[], Claim]:
        """Declare an exchange with a queue; return what makes messages for it."""

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """Publish a batch; return the results."""

    async def taken(self) -> list[str]:
        """Ids that queues have got."""


async def confirms(broker: Broker) -> None:
    """What is confirmed is in the queue, in the order of the calls."""
    make = await broker.exchange()
    claims = [make() for _ in range(100)]
    assert [Verdict.CONFIRMED] * 100 == _verdicts(await broker.send(claims))
    assert [one.id for one in claims] == await broker.taken()


async def returns(broker: Broker) -> None:
    """The publisher distinguishes each unroutable message from its neighbours."""
    make = await broker.exchange()
    claims = [make()._replace(routing_key=NOWHERE) if n % 2 else make() for n in range(60)]
    results = await broker.send(claims)
    assert [Verdict.CONFIRMED, Verdict.RETURNED] * 30 == _verdicts(results)
    assert results[1].code == "unroutable"
    assert "312 NO_ROUTE" in results[1].detail
    assert [one.id for one in claims[::2]] == await broker.taken()


async def nacks(broker: Broker) -> None:
    """A full queue refuses, and another exchange's messages do not mind."""
    full, well = await broker.exchange(full=True), await broker.exchange()
    results = await broker.send([full(), well(), full(), well()])
    assert [Verdict.REFUSED, Verdict.CONFIRMED] * 2 == _verdicts(results)
    assert {"nacked"} == {result.code for result in results[::2]}


async def missing(broker: Broker) -> None:
    """A missing exchange costs the others nothing: its channel is closed with 404, and all of its messages are refused."""
    make = await broker.exchange()
    claims = [one for _ in range(50) for one in (make(), claim("missing"))]
    results = await broker.send(claims)
    assert [Verdict.CONFIRMED, Verdict.REFUSED] * 50 == _verdicts(results)
    assert {"exchange_missing"} == {result.code for result in results[1::2]}
    assert "NOT_FOUND - no exchange 'missing'" in results[1].detail
    assert sorted(one.id for one in claims[::2]) == sorted(await broker.taken())


async def forbidden(broker: Broker) -> None:
    """An exchange to which no login may publish costs the others nothing either: 403."""
    make = await broker.exchange()
    claims = [one for _ in range(20) for one in (make(), claim(FORBIDDEN))]
    results = await broker.send(claims)
    assert [Verdict.CONFIRMED, Verdict.REFUSED] * 20 == _verdicts(results)
    assert {"access_refused"} == {result.code for result in results[1::2]}
    assert "ACCESS_REFUSED - " in results[1].detail
    assert sorted(one.id for one in claims[::2]) == sorted(await broker.taken())


def _verdicts(results: Sequence[PublishResult]) -> list[Verdict]:
    return [result.verdict for result in results]


CASES = pytest.mark.parametrize("case", [confirms, returns, nacks, missing, forbidden], ids=lambda case: case.__name__)
Case = Callable[[Broker], Awaitable[None]]


class Rabbit:
    """RabbitMQ."""

    def __init__(self, publisher: Publishing, declare: Declare, drain: Drain, prefix: str) -> None:
        self._publisher = publisher
        self._declare = declare
        self._drain = drain
        self._prefix = prefix
        self._queues: list[str] = []

    async def exchange(self, *, full: bool = False) -> Callable[[], Claim]:
        """See `Broker`."""
        name = f"{self._prefix}.{len(self._queues)}"
        made = await self._declare(name, name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"} if full else {})
        self._queues.append(made.queue)
        if full:
            await self.send([claim(made.exchange, made.routing_key)])
        return lambda: claim(made.exchange, made.routing_key)

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """See `Broker`."""
        return await self._publisher.send(claims)

    async def taken(self) -> list[str]:
        """See `Broker`."""
        return [str(message.message_id) for queue in self._queues for message in await self._drain(queue)]


@CASES
async def test_on_rabbitmq(case: Case, amqp_url: str, declare: Declare, drain: Drain, unique: str) -> None:
    """The broker itself."""
    async with publishing(amqp_url) as publisher:
        await case(Rabbit(publisher, declare, drain, unique))


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
