"""Where messages go and how consumers get them, shown on RabbitMQ and on the broker that applications test with: the same cases on both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import aio_pika
import pytest

from relay.message import Claim, PublishResult, Verdict
from relay.testing.fake_broker.broker import Broker
from relay.testing.fake_broker.topology import Kind
from tests.support.broker.publishing import Publishing, claim, publishing

FIELDS = (
    "exchange", "routing_key", "body", "headers", "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id",
    "reply_to", "message_id", "timestamp", "type", "user_id", "app_id",
)  # fmt: skip
PASS, BACK = Verdict.CONFIRMED, Verdict.RETURNED


class Way(NamedTuple):
    """From an exchange to a queue."""

    queue: str
    key: str = ""
    arguments: Mapping[str, Any] = {}


class Broker_(Protocol):  # noqa: N801 - the broker is the other one
    """A broker with a publisher on it; names of exchanges and queues are the case's own."""

    async def declare(self, exchange: str, kind: Kind, *ways: Way, internal: bool = False) -> None:
        """Declare an exchange and queues behind it."""

    def named(self, name: str) -> str:
        """A name as the broker has it."""

    async def send(self, *claims: Claim) -> list[PublishResult]:
        """Publish a batch; return the results."""

    async def taken(self, queue: str) -> list[Mapping[str, Any]]:
        """What a consumer of a queue gets."""


Case = Callable[[Broker_], Any]


async def _go(broker: Broker_, exchange: str, keys: Sequence[str], **options: Any) -> list[Verdict]:
    text = json.dumps(options) if options else None
    return [one.verdict for one in await broker.send(*(claim(broker.named(exchange), key, options=text) for key in keys))]


async def _keys(broker: Broker_, *queues: str) -> list[list[str]]:
    return [[message["routing_key"] for message in await broker.taken(queue)] for queue in queues]


async def direct(broker: Broker_) -> None:
    """By the very key, to each queue that is bound by it, once."""
    await broker.declare("d", "direct", Way("one", "a"), Way("one", "b"), Way("two", "a"))
    assert [PASS, PASS, BACK, BACK] == await _go(broker, "d", ["a", "b", "a.b", ""])
    assert [["a", "b"], ["a"]] == await _keys(broker, "one", "two")


async def fanout(broker: Broker_) -> None:
    """To every queue, whatever the key."""
    await broker.declare("f", "fanout", Way("one", "a"), Way("two"))
    assert [PASS, PASS] == await _go(broker, "f", ["a", "z"])
    assert [["a", "z"], ["a", "z"]] == await _keys(broker, "one", "two")


async def topic(broker: Broker_) -> None:
    """A star is one word, a hash any number of them."""
    await broker.declare("t", "topic", Way("star", "order.*.eu"), Way("hash", "order.#"), Way("middle", "#.eu"), Way("all", "#.*.#"))
    keys = ["order.paid.eu", "order", "order.eu", "order.a.b.eu", "eu", "orders.paid"]
    assert [PASS] * 6 == await _go(broker, "t", keys)
    assert [
        ["order.paid.eu"],
        ["order.paid.eu", "order", "order.eu", "order.a.b.eu"],
        ["order.paid.eu", "order.eu", "order.a.b.eu", "eu"],
        keys,
    ] == await _keys(broker, "star", "hash", "middle", "all")


async def headers(broker: Broker_) -> None:
    """All of the binding's headers or any of them; names that begin with x- do not count unless the binding says so."""
    ways = [
        Way("all", arguments={"a": 1, "b": "x", "x-c": 5}),
        Way("any", arguments={"x-match": "any", "a": 1, "b": "x"}),
        Way("also", arguments={"x-match": "any-with-x", "x-c": 5}),
    ]
    await broker.declare("h", "headers", *ways)
    assert [PASS] == await _go(broker, "h", ["both"], headers={"a": 1, "b": "x", "more": True})
    assert [PASS] == await _go(broker, "h", ["one"], headers={"a": 1, "b": "y"})
    assert [BACK] == await _go(broker, "h", ["none"], headers={"a": 2, "x-match": "any"})
    assert [PASS] == await _go(broker, "h", ["x"], headers={"x-c": 5})
    assert [["both"], ["both", "one"], ["x"]] == await _keys(broker, "all", "any", "also")


async def default(broker: Broker_) -> None:
    """The default exchange leads to the queue that the key names."""
    await broker.declare("d", "direct", Way("one", "a"))
    results = await broker.send(claim("", broker.named("one")), claim("", broker.named("two")))
    assert [PASS, BACK] == [one.verdict for one in results]
    assert 1 == len(await broker.taken("one"))


async def copies(broker: Broker_) -> None:
    """CC and BCC are further keys: a queue gets one copy, the message does not show BCC, and one key with a route is enough."""
    await broker.declare("d", "direct", Way("one", "a"), Way("one", "b"), Way("two", "c"))
    assert [PASS] == await _go(broker, "d", ["a"], CC=["b", "z"], BCC=["c"])
    assert [PASS, BACK] == [*await _go(broker, "d", ["z"], CC=["b"]), *await _go(broker, "d", ["z"], CC=["y"])]
    first, second = await broker.taken("one")
    [blind] = await broker.taken("two")
    assert [["b", "z"], ["b"]] == [first["headers"]["CC"], second["headers"]["CC"]]
    assert all("BCC" not in message["headers"] for message in (first, blind))


async def careless(broker: Broker_) -> None:
    """Without mandatory what is routed nowhere is confirmed, and gone."""
    await broker.declare("d", "direct", Way("one", "a"))
    assert [PASS] == await _go(broker, "d", ["z"], mandatory=False)
    assert [] == await broker.taken("one")


async def properties(broker: Broker_) -> None:
    """A consumer gets what the options say, and the relay's own headers."""
    await broker.declare("d", "direct", Way("one", "a"))
    options = {
        "priority": 3, "correlationId": "c-1", "replyTo": "back", "type": "paid", "appId": "shop", "timestamp": 1_700_000_000,
        "contentType": "text/plain", "contentEncoding": "utf-8", "messageId": "own", "persistent": False,
        "headers": {"n": 1, "t": ["x", None]},
    }  # fmt: skip
    one, plain = claim(broker.named("d"), "a", options=json.dumps(options), payload=b"\0" * 300_000), claim(broker.named("d"), "a")
    await broker.send(one, plain)
    rich, bare = await broker.taken("one")
    assert b"\0" * 300_000 == rich["body"]
    assert {"n": 1, "t": ["x", None], "x-relay-id": one.id} == rich["headers"]
    assert ("own", 3, "c-1", "back", "paid", "shop", 1) == tuple(rich[name] for name in _NAMES)
    assert ("text/plain", "utf-8", 1_700_000_000) == (rich["content_type"], rich["content_encoding"], rich["timestamp"].timestamp())
    assert (plain.id, "application/json", 2, None) == tuple(bare[name] for name in ("message_id", "content_type", "delivery_mode", "type"))


_NAMES = ("message_id", "priority", "correlation_id", "reply_to", "type", "app_id", "delivery_mode")


async def refused(broker: Broker_) -> None:
    """Another one's user_id, and an internal exchange: refused, and the neighbour's messages are not, though they may come again."""
    await broker.declare("d", "direct", Way("one", "a"))
    await broker.declare("i", "fanout", Way("one"), internal=True)
    well, wrong = claim(broker.named("d"), "a"), claim(broker.named("d"), "a", options='{"userId": "somebody else"}')
    results = await broker.send(well, wrong, claim(broker.named("i"), "a"))
    assert [PASS, Verdict.REFUSED, Verdict.REFUSED] == [one.verdict for one in results]
    assert "PRECONDITION_FAILED - user_id property set to 'somebody else' but authenticated user was " in results[1].detail
    assert results[2].code == "access_refused"
    # A channel that is closed before it has confirmed leaves what it had taken unknown.
    assert {well.id} == {message["message_id"] for message in await broker.taken("one")}


CASES = pytest.mark.parametrize(
    "case", [direct, fanout, topic, headers, default, copies, careless, properties, refused], ids=lambda case: case.__name__
)


class Rabbit:
    """RabbitMQ."""

    def __init__(self, publisher: Publishing, channel: aio_pika.abc.AbstractChannel, prefix: str) -> None:
        self._publisher = publisher
        self._channel = channel
        self._prefix = prefix

    def named(self, name: str) -> str:
        """See `Broker_`."""
        return f"{self._prefix}.{name}"

    async def declare(self, exchange: str, kind: Kind, *ways: Way, internal: bool = False) -> None:
        """See `Broker_`; everything goes with the connection."""
        made = await self._channel.declare_exchange(self.named(exchange), kind, auto_delete=True, internal=internal)
        for way in ways:
            queue = await self._channel.declare_queue(self.named(way.queue), exclusive=True)
            await queue.bind(made, way.key, arguments=dict(way.arguments))

    async def send(self, *claims: Claim) -> list[PublishResult]:
        """See `Broker_`."""
        return await self._publisher.send(claims)

    async def taken(self, queue: str) -> list[Mapping[str, Any]]:
        """See `Broker_`."""
        found: list[Mapping[str, Any]] = []
        source = await self._channel.get_queue(self.named(queue), ensure=False)
        while (message := await source.get(no_ack=True, fail=False)) is not None:
            found.append({name: getattr(message, name) for name in FIELDS})
        return found


class Double:
    """The broker in memory."""

    def __init__(self, broker: Broker, publisher: Publishing) -> None:
        self._broker = broker
        self._publisher = publisher

    def named(self, name: str) -> str:
        """See `Broker_`."""
        return name

    async def declare(self, exchange: str, kind: Kind, *ways: Way, internal: bool = False) -> None:
        """See `Broker_`."""
        self._broker.declare_exchange(exchange, kind, internal=internal)
        for way in ways:
            self._broker.bind(way.queue, exchange, way.key, arguments=way.arguments)

    async def send(self, *claims: Claim) -> list[PublishResult]:
        """See `Broker_`."""
        return await self._publisher.send(claims)

    async def taken(self, queue: str) -> list[Mapping[str, Any]]:
        """See `Broker_`."""
        return [{name: getattr(message, name) for name in FIELDS} for message in self._broker.purge(queue)]


@pytest.fixture
async def channel(amqp_url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """A channel of a connection that takes what it declared with it."""
    async with await aio_pika.connect(amqp_url) as connection:
        yield await connection.channel()


@CASES
async def test_on_rabbitmq(case: Case, amqp_url: str, channel: aio_pika.abc.AbstractChannel, unique: str) -> None:
    """The broker itself."""
    async with publishing(amqp_url) as publisher:
        await case(Rabbit(publisher, channel, unique))


@CASES
async def test_on_the_double_of_applications(case: Case) -> None:
    """What applications test with."""
    with Broker() as broker:
        async with publishing(broker.url) as publisher:
            await case(Double(broker, publisher))
