"""Every kind of queue behind one exchange, each with the queue in which its messages end, and a consumer that sees what arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from relay import local

PLUGINS: Final = ("rabbitmq_federation", "rabbitmq_shovel")
SOON: Final[dict[str, Any]] = {"x-message-ttl": 1}
QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}


class Kind(NamedTuple):
    """Arguments of a queue, whether it dead-letters to the queue `<name>.end`, and what its consumer does."""

    arguments: dict[str, Any]
    dead_letters: bool = False
    requeues: bool = False
    """Its consumer returns each message until the delivery limit is reached."""


KINDS: Final = {
    "classic": Kind({}),
    "lazy": Kind({"x-queue-mode": "lazy"}),
    "priority": Kind({"x-max-priority": 4}),
    "expiring": Kind(SOON, dead_letters=True),
    "expiring-priority": Kind({**SOON, "x-max-priority": 255}, dead_letters=True),
    "dropping": Kind({"x-max-length": 0, "x-overflow": "drop-head"}, dead_letters=True),
    "rejecting": Kind({"x-max-length": 1, "x-overflow": "reject-publish"}),
    "rejecting-dead": Kind({"x-max-length": 0, "x-overflow": "reject-publish-dlx"}, dead_letters=True),
    "quorum": Kind(QUORUM),
    "quorum-expiring": Kind({**QUORUM, **SOON}, dead_letters=True),
    "quorum-at-least-once": Kind(
        {**QUORUM, **SOON, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}, dead_letters=True
    ),
    "quorum-limit": Kind({**QUORUM, "x-delivery-limit": 1}, dead_letters=True, requeues=True),
    "stream": Kind({"x-queue-type": "stream"}),
}
"""By the routing key that leads to the queue."""
ELSEWHERE: Final = ("federated", "federated-queue", "shovelled")
"""Ways to another vhost."""
ENDS: Final = (*KINDS, *ELSEWHERE)


class Lab:
    """One exchange on a node of the test's own, with a queue of every kind, and another vhost that takes its messages.

    Args:
        node: it has the plugins `PLUGINS`.
        name: begins all names.
    """

    def __init__(self, node: local.RabbitMQ, name: str) -> None:
        self.node, self.name, self.exchange = node, name, f"{name}.x"
        self.url = node.add_vhost(name)
        self.far_url = node.add_vhost(f"{name}-far")

    def queue(self, kind: str) -> str:
        """Name of the queue that a routing key leads to."""
        return f"{self.name}.{kind}"

    def end(self, kind: str) -> str:
        """Name of the queue in which messages of a kind end."""
        return f"{self.queue(kind)}.end" if kind in KINDS and KINDS[kind].dead_letters else self.queue(kind)

    async def build(self) -> None:
        """Declare everything."""
        async with await aio_pika.connect(self.url) as connection, connection.channel() as channel:
            exchange = await channel.declare_exchange(self.exchange, "direct", durable=True)
            for name, kind in KINDS.items():
                await self._declare(channel, exchange, name, kind)
            for name in ("federated-queue", "shovelled"):
                await (await channel.declare_queue(self.queue(name), durable=True)).bind(exchange, name)
        async with await aio_pika.connect(self.far_url) as connection, connection.channel() as channel:
            exchange = await channel.declare_exchange(self.exchange, "direct", durable=True)
            await (await channel.declare_queue(self.queue("federated"), durable=True)).bind(exchange, "federated")
            await channel.declare_queue(self.queue("federated-queue"), durable=True)
            await channel.declare_queue(self.queue("shovelled"), durable=True)
        await asyncio.to_thread(self._link)

    async def _declare(self, channel: AbstractChannel, exchange: aio_pika.abc.AbstractExchange, name: str, kind: Kind) -> None:
        arguments: dict[str, Any] = dict(kind.arguments)
        if kind.dead_letters:
            # Two hops, so that what the broker wrote at the first is read at the second.
            middle: dict[str, Any] = {**SOON, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.end(name)}
            await channel.declare_queue(self.end(name), durable=True)
            await channel.declare_queue(f"{self.queue(name)}.middle", durable=True, arguments=middle)
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{self.queue(name)}.middle"}
        await (await channel.declare_queue(self.queue(name), durable=True, arguments=arguments)).bind(exchange, name)

    def _link(self) -> None:
        """Federate the exchange and a queue, and shovel another queue, all to the other vhost."""
        upstream = {"uri": self.url, "reconnect-delay": 1}
        far = ("-p", f"{self.name}-far")
        self.node.ctl("set_parameter", *far, "federation-upstream", "near", json.dumps(upstream))
        for what in ("exchanges", "queues"):
            pattern = f"^{self.name}[.](x|federated-queue)$"
            self.node.ctl("set_policy", *far, f"near-{what}", pattern, '{"federation-upstream": "near"}', "--apply-to", what)
        shovel = {
            "src-uri": self.url, "src-queue": self.queue("shovelled"), "dest-uri": self.far_url,
            "dest-queue": self.queue("shovelled"), "dest-add-forward-headers": True, "reconnect-delay": 1,
        }  # fmt: skip
        self.node.ctl("set_parameter", "-p", self.name, "shovel", self.name, json.dumps(shovel))

    def remove(self) -> None:
        """Remove both vhosts with everything in them."""
        for name in (self.name, f"{self.name}-far"):
            self.node.delete_vhost(name)


class Arrivals:
    """Ids of the messages that have come to the end of each kind."""

    def __init__(self) -> None:
        self._came: dict[str, list[str]] = {kind: [] for kind in ENDS}
        self._more = asyncio.Event()

    def add(self, kind: str, message: AbstractIncomingMessage) -> None:
        """Note one message."""
        self._came[kind].append(str(message.headers.get("x-relay-id")))
        self._more.set()

    def of(self, kind: str) -> list[str]:
        """Ids in the order of their arrival."""
        return self._came[kind]

    async def wait_for(self, owed: dict[str, Collection[str]], *, seconds: float) -> dict[str, int]:
        """Wait until all of these have come; return how many of each kind are missing after so long."""
        try:
            async with asyncio.timeout(seconds):
                while missing := _missing(owed, self._came):
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pass
        return missing


def _missing(owed: dict[str, Collection[str]], came: dict[str, list[str]]) -> dict[str, int]:
    return {kind: left for kind, ids in owed.items() if (left := len({*ids} - {*came[kind]}))}


@asynccontextmanager
async def watching(lab: Lab) -> AsyncIterator[Arrivals]:
    """Consume from every end of a lab; what cannot be consumed any more is missing from the arrivals."""
    arrivals = Arrivals()
    async with await aio_pika.connect(lab.url) as near, await aio_pika.connect(lab.far_url) as far:
        for kind in ENDS:
            channel = await (far if kind in ELSEWHERE else near).channel()
            await channel.set_qos(prefetch_count=200)
            await _consume(arrivals, lab, kind, channel)
        yield arrivals


async def _consume(arrivals: Arrivals, lab: Lab, kind: str, channel: AbstractChannel) -> None:
    async def take(message: AbstractIncomingMessage) -> None:
        arrivals.add(kind, message)
        await message.ack()

    queue: AbstractQueue = await channel.get_queue(lab.end(kind), ensure=False)
    arguments: dict[str, Any] | None = {"x-stream-offset": "next"} if kind == "stream" else None
    if kind in KINDS and KINDS[kind].requeues:
        await _return_all(await channel.get_queue(lab.queue(kind), ensure=False))
    await queue.consume(take, arguments=arguments)


async def _return_all(queue: AbstractQueue) -> None:
    async def give_back(message: AbstractIncomingMessage) -> None:
        await message.reject(requeue=True)

    await queue.consume(give_back)
