"""What the broker refuses by closing a channel: a missing exchange, a missing permission, a refused property."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from relay.devservers import RabbitMQ
from relay.events.broker import BrokerDown, BrokerUp, ExchangeProven, ExchangeQuarantined
from relay.message import Claim, Verdict
from tests.support.broker.publishing import claim, publishing
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import until
from tests.support.network.lost_confirms import ConfirmsLost
from tests.support.servers.private import user_of
from tests.support.servers.shared import Declare, Drain

OF_SOMEONE_ELSE = '{"userId": "nobody"}'


@pytest.fixture
def limited_url(own_broker: RabbitMQ, unique: str) -> Iterator[str]:
    """URL of a user who may write to exchanges `<unique>.open*`."""
    with user_of(own_broker, unique, may_write=f"{unique}\\.open.*") as url:
        yield url


@pytest.mark.ids("C9", "C15")
async def test_a_missing_exchange_among_500_messages_costs_the_others_nothing(
    amqp_url: str, declare: Declare, drain: Drain, unique: str
) -> None:
    """All others are confirmed, none of them twice, and the connection stays."""
    made = await declare()
    claims = [claim(f"{unique}.missing" if n % 50 == 25 else made.exchange, made.routing_key) for n in range(510)]
    async with publishing(amqp_url) as broker:
        results = await broker.send(claims)
        assert len(broker.seen.of(BrokerUp)) == 1
        assert broker.seen.of(BrokerDown) == []
        assert [event.exchange for event in broker.seen.of(ExchangeQuarantined)] == [f"{unique}.missing"]
    refused = {(result.code, result.detail.partition(" in vhost")[0]) for result in results if result.verdict is Verdict.REFUSED}
    assert Counter(result.verdict for result in results) == {Verdict.CONFIRMED: 500, Verdict.REFUSED: 10}
    assert refused == {("exchange_missing", f"NOT_FOUND - no exchange '{unique}.missing'")}
    good = [one.id for one in claims if one.exchange == made.exchange]
    assert [message.message_id for message in await drain(made.queue)] == good


async def test_a_missing_exchange_works_as_soon_as_it_is_there(amqp_url: str, declare: Declare, unique: str) -> None:
    """A refusal is remembered for a second, so that not every batch costs a channel; then the exchange is tried again."""
    ahead = 0.0
    async with publishing(amqp_url, clock=lambda: time.monotonic() + ahead) as broker:
        assert await broker.verdicts(claim(f"{unique}.exchange") for _ in range(3)) == [Verdict.REFUSED] * 3
        await declare()
        assert await broker.verdicts([claim(f"{unique}.exchange")]) == [Verdict.REFUSED]
        ahead = 1.1
        assert await broker.verdicts(claim(f"{unique}.exchange") for _ in range(3)) == [Verdict.CONFIRMED] * 3
        assert [type(event) for event in broker.seen.events] == [BrokerUp, ExchangeQuarantined, ExchangeProven]


async def test_an_exchange_that_goes_while_messages_are_in_flight_is_refused_and_harms_no_other(
    amqp_url: str, topology: Topology, unique: str
) -> None:
    """A message of the deleted exchange was delivered, may have been, or is refused as such; the other exchange has everything once."""
    gone, other = await topology.declare(), await topology.declare(f"{unique}.other", f"{unique}.others")
    async with publishing(amqp_url) as broker:
        await broker.verdicts([claim(gone.exchange, gone.routing_key), claim(other.exchange, other.routing_key)])
        sends = [asyncio.create_task(broker.send(alternating(gone, other))) for _ in range(10)]
        await sends[0]
        await topology._channel.exchange_delete(gone.exchange)
        results = [await send for send in sends] + [await broker.send(alternating(gone, other))]
        assert len(broker.seen.of(BrokerUp)) == 1
    of_gone = [result for send in results for result in send[::2]]
    confirmed = sum(result.verdict is Verdict.CONFIRMED for result in of_gone)
    # RabbitMQ deletes the bindings first: for a moment the exchange is there and leads nowhere.
    refused = {result.code for result in of_gone if result.verdict is not Verdict.CONFIRMED}
    assert {"exchange_missing"} <= refused <= {"exchange_missing", "confirm_lost", "unroutable"}
    assert 200 <= confirmed < await topology.waiting(gone.queue)
    assert {result.verdict for send in results for result in send[1::2]} == {Verdict.CONFIRMED}
    assert await topology.waiting(other.queue) == 2201


@pytest.mark.ids("C9", "C15")
async def test_what_the_broker_took_is_not_refused_because_its_exchange_went_before_the_confirm(amqp_url: str, topology: Topology) -> None:
    """It is unknown; the message that found the exchange gone is refused, and nothing is written twice."""
    made = await topology.declare()
    async with ConfirmsLost.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker, asyncio.TaskGroup() as tasks:
        assert [Verdict.CONFIRMED] == await broker.verdicts([claim(made.exchange, made.routing_key)])
        proxy.loses = True
        taken = tasks.create_task(broker.send(claim(made.exchange, made.routing_key) for _ in range(40)))
        await until(lambda: topology.has(made.queue, 41))
        await topology._channel.exchange_delete(made.exchange)
        assert [Verdict.REFUSED] == await broker.verdicts([claim(made.exchange, made.routing_key)])
        assert {(Verdict.UNKNOWN, "confirm_lost")} == {(result.verdict, result.code) for result in await taken}
    assert await topology.has(made.queue, 41)


def alternating(first: Declared, second: Declared) -> list[Claim]:
    """400 messages of 3 kB, for one and the other in turn."""
    return [claim(made.exchange, made.routing_key, b"x" * 3000) for _ in range(200) for made in (first, second)]


async def test_an_internal_exchange_is_refused_at_once_for_all_its_messages(amqp_url: str, topology: Topology, unique: str) -> None:
    """No login may publish to it; one message finds this out for all that wait."""
    exchange = await topology.declare_exchange(f"{unique}.internal", internal=True)
    async with publishing(amqp_url) as broker:
        results = await broker.send(claim(exchange) for _ in range(300))
    assert {(result.verdict, result.code) for result in results} == {(Verdict.REFUSED, "access_refused")}
    assert "cannot publish to internal exchange" in results[0].detail


async def test_an_exchange_without_write_permission_is_refused(limited_url: str, own_topology: Topology, unique: str) -> None:
    """The broker names the exchange; messages of the same user to other exchanges are still sent."""
    closed = await own_topology.declare(f"{unique}.closed", f"{unique}.closed")
    allowed = await own_topology.declare(f"{unique}.open", f"{unique}.open")
    async with publishing(limited_url) as broker:
        claims = [claim(made.exchange, made.routing_key) for _ in range(100) for made in (closed, allowed)]
        results = await broker.send(claims)
        assert len(broker.seen.of(BrokerUp)) == 1
    assert {(result.verdict, result.code) for result in results[::2]} == {(Verdict.REFUSED, "access_refused")}
    assert f"access to exchange '{unique}.closed'" in results[0].detail
    assert {result.verdict for result in results[1::2]} == {Verdict.CONFIRMED}
    assert (await own_topology.waiting(closed.queue), await own_topology.waiting(allowed.queue)) == (0, 100)


async def test_a_topic_without_permission_is_refused_alone(
    own_broker: RabbitMQ, limited_url: str, own_topology: Topology, unique: str
) -> None:
    """The same exchange takes the messages whose routing key is allowed; none is lost, none goes out a third time."""
    made = await own_topology.declare(f"{unique}.open-topics", routing_key="#", kind="topic")
    own_broker.ctl("set_topic_permissions", "-p", "/", unique, made.exchange, "^open.*", "")
    keys = ["closed" if n in (7, 30) else "open.one" for n in range(50)]
    async with publishing(limited_url) as broker:
        await broker.verdicts([claim(made.exchange, "open.first")])
        claims = [claim(made.exchange, key) for key in keys]
        results = await broker.send(claims)
    verdicts = [Verdict.REFUSED if key == "closed" else Verdict.CONFIRMED for key in keys]
    assert [result.verdict for result in results] == verdicts
    assert {result.code for result in results if result.code} == {"access_refused"}
    await came_once_or_twice(own_topology, made.queue, [one.id for one, key in zip(claims, keys, strict=True) if key != "closed"])


async def test_one_guilty_message_among_50_of_its_exchange_is_blamed_alone(amqp_url: str, topology: Topology) -> None:
    """Its neighbours are confirmed, each once, and the exchange is trusted as before."""
    made = await topology.declare()
    claims = [claim(made.exchange, made.routing_key, options=OF_SOMEONE_ELSE if n == 20 else None) for n in range(51)]
    async with publishing(amqp_url) as broker:
        await broker.verdicts([claim(made.exchange, made.routing_key)])
        results = await broker.send(claims)
        assert await broker.verdicts(claim(made.exchange, made.routing_key) for _ in range(10)) == [Verdict.CONFIRMED] * 10
        assert [type(event) for event in broker.seen.events] == [BrokerUp, ExchangeProven, ExchangeQuarantined]
    guilty = results.pop(20)
    assert (guilty.verdict, guilty.code) == (Verdict.REFUSED, "broker_refused")
    assert guilty.detail.startswith("PRECONDITION_FAILED - user_id property set to 'nobody'")
    assert {result.verdict for result in results} == {Verdict.CONFIRMED}
    await came_once_or_twice(topology, made.queue, [one.id for n, one in enumerate(claims) if n != 20])


async def test_guilty_messages_only_are_all_blamed_one_by_one(amqp_url: str, topology: Topology, unique: str) -> None:
    """A batch without any good message comes to an end too, and the connection stays."""
    made = await topology.declare()
    async with publishing(amqp_url) as broker:
        results = await broker.send(claim(made.exchange, made.routing_key, options=OF_SOMEONE_ELSE) for _ in range(30))
        assert await broker.verdicts([claim(made.exchange, made.routing_key)]) == [Verdict.CONFIRMED]
        assert len(broker.seen.of(BrokerUp)) == 1
    assert {(result.verdict, result.code) for result in results} == {(Verdict.REFUSED, "broker_refused")}
    assert await topology.waiting(made.queue) == 1


async def came_once_or_twice(topology: Topology, queue: str, ids: list[str]) -> None:
    """Check that each of these messages is in the queue, and none of them three times."""
    counts = Counter(message.headers["x-relay-id"] for message in await topology.drain(queue))
    assert set(ids) <= set(counts)
    assert max(counts.values()) <= 2
