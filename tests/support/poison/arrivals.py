"""What arrives at the ends of a poison world: consumers that see each property as it is, and keep each queue's messages moving."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp import commands

from relay import devservers
from tests.support.broker.raw_amqp import Delivery
from tests.support.poison.lab import DIRECT, ENDS, KINDS, PARKED, Ports, end, far, is_far, queue
from tests.support.poison.subscribers import Subscribers, subscribed


class Arrivals:
    """The messages that have come to the end of each kind."""

    def __init__(self) -> None:
        self.subscribers = Subscribers()
        self._came: dict[str, dict[str, list[Delivery]]] = {kind: {} for kind in ENDS}
        self._bodies: dict[bytes, bytes] = {}
        """Each body, once."""
        self._names: dict[str, str] = {}
        self._more = asyncio.Event()

    def add(self, kind: str, message: DeliveredMessage) -> None:
        """Note one message."""
        properties = message.header.properties
        assert isinstance(properties, commands.Basic.Properties)
        delivery = Delivery(properties, self._bodies.setdefault(message.body, message.body))
        name = delivery.relay_id if properties.headers and "x-relay-id" in properties.headers else str(properties.message_id)
        self._came[kind].setdefault(self._names.get(name, name), []).append(delivery)
        self._more.set()

    def rename(self, names: Mapping[str, str]) -> None:
        """Note what came, and will come, with some ids under others."""
        self._names |= names
        for came in self._came.values():
            for name in names.keys() & came.keys():
                came[names[name]] = came.pop(name)
        self._more.set()

    def of(self, kind: str, id_: str) -> list[Delivery]:
        """Copies of a message at the end of a kind."""
        return self._came[kind].get(id_, [])

    def counted(self) -> Counter[tuple[str, str]]:
        """Copies by kind and id."""
        return Counter({(kind, id_): len(copies) for kind, ids in self._came.items() for id_, copies in ids.items()})

    async def wait_for(self, owed: Collection[tuple[str, str]], seconds: float) -> set[tuple[str, str]]:
        """Wait until each of these ids has come to the end of its kind; return those that are missing after so long."""
        missing = {*owed}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while missing := {(kind, id_) for kind, id_ in missing if not self.of(kind, id_)}:
                    self._more.clear()
                    await self._more.wait()
        return missing


@asynccontextmanager
async def watching(node: devservers.RabbitMQ, ports: Ports, world: str) -> AsyncIterator[Arrivals]:
    """Park messages, consume from every end of a world, and subscribe to it, from when its links work on."""
    arrivals = Arrivals()
    near, remote = await aiormq.connect(node.url + world), await aiormq.connect(node.url + far(world))
    try:
        for kind in ENDS:
            channel = await (remote if is_far(kind) else near).channel()
            await channel.basic_qos(prefetch_count=200)
            await _consume(arrivals, kind, channel)
        # An alarm of the broker blocks every connection that has published, even its acknowledgements.
        async with await aiormq.connect(node.url + world) as publisher:
            channel = await publisher.channel(publisher_confirms=True)
            for name in PARKED:
                await channel.basic_publish(b"", routing_key=name, properties=commands.Basic.Properties(delivery_mode=2))
            await _await_links(arrivals, channel)
        async with subscribed(ports, world, arrivals.subscribers):
            yield arrivals
    finally:
        await near.close()
        await remote.close()


async def _consume(arrivals: Arrivals, kind: str, channel: AbstractChannel) -> None:
    returns = KINDS[kind].returns if kind in KINDS else ""

    async def take(message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        assert tag is not None
        if returns == "once" and "x-death" not in (message.header.properties.headers or {}):
            await channel.basic_reject(tag, requeue=False)
            return
        arrivals.add(kind, message)
        await channel.basic_ack(tag)

    async def give_back(message: DeliveredMessage) -> None:
        assert message.delivery_tag is not None
        await channel.basic_reject(message.delivery_tag, requeue=True)

    if returns == "always":
        await channel.basic_consume(queue(kind), give_back)
    await channel.basic_consume(end(kind), take, arguments={"x-stream-offset": "next"} if kind == "stream" else None)


async def _await_links(arrivals: Arrivals, channel: AbstractChannel) -> None:
    """Send through each link until something arrives."""
    links = [kind for kind in KINDS if is_far(kind)]
    async with asyncio.timeout(60):
        while waiting := [kind for kind in links if not arrivals.of(kind, "warm")]:
            for kind in waiting:
                properties = commands.Basic.Properties(message_id="warm")
                await channel.basic_publish(b"", exchange=DIRECT, routing_key=queue(kind), properties=properties)
            await asyncio.sleep(0.2)  # a link says nothing when it begins to work
