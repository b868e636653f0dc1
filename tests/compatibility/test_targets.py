"""What a message may end in: a classic queue, a quorum queue, a stream; each confirms by rules of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays

COUNT = 200
PREFETCH = 50


async def came_to(url: str, inbox: Declared, count: int, arguments: dict[str, Any] | None = None) -> list[AbstractIncomingMessage]:
    """Take so many messages as consumers of every kind may: with acknowledgements and a prefetch, which a stream asks for."""
    came: list[AbstractIncomingMessage] = []
    enough = asyncio.Event()

    async def take(message: AbstractIncomingMessage) -> None:
        came.append(message)
        await message.ack()
        if len(came) >= count:
            enough.set()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(inbox.queue, ensure=False)
        await queue.consume(take, arguments=arguments)
        await asyncio.wait_for(enough.wait(), 60)
    return came


@pytest.mark.parametrize(
    ("declared", "consumed"),
    [
        ({"x-queue-type": "classic"}, None),
        ({"x-queue-type": "quorum"}, None),
        ({"x-queue-type": "stream"}, {"x-stream-offset": "first"}),
    ],
    ids=["classic", "quorum", "stream"],
)
async def test_every_kind_of_queue_confirms_and_keeps_the_order(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, declared: dict[str, Any], consumed: dict[str, Any] | None
) -> None:
    """Each message is archived as a success, and is there once, those of a key in their order."""
    made = await topology.declare(arguments=declared)
    relay = await relays.start(database=queue.url, broker=amqp_url)
    free = await queue.insert(COUNT, exchange=made.exchange, routing_key=made.routing_key)
    keyed = [id_ for _ in range(10) for id_ in await queue.insert(exchange=made.exchange, routing_key=made.routing_key, ordering_key="key")]
    await queue.settled(seconds=60)

    assert dict.fromkeys([*free, *keyed], "success") == await queue.results()
    came = [str(message.headers["x-relay-id"]) for message in await came_to(amqp_url, made, COUNT + len(keyed), consumed)]
    assert sorted([*free, *keyed]) == sorted(came)
    assert keyed == [id_ for id_ in came if id_ in set(keyed)]
    assert 0 == await relay.stop()


async def test_a_message_for_queues_of_every_kind_waits_for_all_of_them(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """One routing key leads to a classic queue, a quorum queue and a stream: one confirm for the three, and a copy in each."""
    kinds = {kind: f"{unique}.{kind}" for kind in ("classic", "quorum", "stream")}
    made = [await topology.declare(queue=name, kind="fanout", arguments={"x-queue-type": kind}) for kind, name in kinds.items()]
    await relays.start(database=queue.url, broker=amqp_url)
    sent = await queue.insert(20, exchange=made[0].exchange)
    await queue.settled(seconds=60)

    assert dict.fromkeys(sent, "success") == await queue.results()
    for kind, inbox in zip(kinds, made, strict=True):
        came = await came_to(amqp_url, inbox, len(sent), {"x-stream-offset": "first"} if kind == "stream" else None)
        assert sorted(sent) == sorted(str(message.headers["x-relay-id"]) for message in came), kind


async def test_a_message_that_names_a_stream_as_its_routing_key_goes_there(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """The default exchange leads to a stream as to any queue."""
    made = await topology.declare("", arguments={"x-queue-type": "stream"})
    await relays.start(database=queue.url, broker=amqp_url)
    sent = await queue.insert(5, exchange="", routing_key=made.routing_key)
    await queue.settled(seconds=60)
    assert dict.fromkeys(sent, "success") == await queue.results()
    assert sorted(sent) == sorted(str(m.headers["x-relay-id"]) for m in await came_to(amqp_url, made, 5, {"x-stream-offset": "first"}))


async def test_a_full_quorum_queue_nacks_and_its_messages_wait(relays: Relays, queue: Queue, topology: Topology, amqp_url: str) -> None:
    """`reject-publish` of a quorum queue is heard as a nack: a message waits, and goes when there is room."""
    full = {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"}
    made = await topology.declare(arguments=full)
    for name, value in (("backoff_base", "0.2"), ("backoff_max", "1"), ("max_attempts", "1000")):
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)
    await relays.start(database=queue.url, broker=amqp_url)
    sent = await queue.insert(2, exchange=made.exchange, routing_key=made.routing_key)
    await queue.settled(seconds=60)
    sent += await queue.insert(30, exchange=made.exchange, routing_key=made.routing_key)
    await until(lambda: queue.value("SELECT count(*) > 0 FROM queue_message WHERE last_error LIKE '%nack%'"))
    # One consumer for all: what one that leaves had not acknowledged in time would come to the next one again.
    came = await came_to(amqp_url, made, len(sent))
    await queue.settled(seconds=60)
    assert dict.fromkeys(sent, "success") == await queue.results()
    assert sorted(sent) == sorted(str(message.headers["x-relay-id"]) for message in came)
