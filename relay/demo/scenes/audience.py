"""The receiving side of the scenes: a consumer that keeps its messages, and a queue that only `relay receive` reads."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

EXCHANGE: Final = "desk"
"""A topic exchange."""
INVOICES: Final = "desk.invoices"
"""The queue that `relay receive` reads."""
_SEEN: Final = ("order.#", "beat", "charge", "level", "line", "never", "traced")
"""The routing keys by which the consumer's own queue is bound."""


class Delivery(NamedTuple):
    """A message as a consumer sees it."""

    content: Any
    headers: dict[str, Any]


class Audience:
    """Declares exchange and queues for the scenes (a relay declares nothing), and consumes messages.

    Args:
        url: the broker.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AbstractConnection | None = None
        self._taken: dict[str, list[Delivery]] = {}
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect(self._url)
        channel = await self._connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
        seen, invoices = [await channel.declare_queue(name, durable=True) for name in ("desk.seen", INVOICES)]
        for key in _SEEN:
            await seen.bind(exchange, key)
        await invoices.bind(exchange, "invoice")
        await seen.consume(self._take, no_ack=True)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def seen(self, routing_key: str, *, least: int = 1) -> list[Delivery]:
        """Wait for at least `least` messages with a routing key; return all that were received so far."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.of(routing_key)) >= least)
            return self.of(routing_key)

    def of(self, routing_key: str) -> list[Delivery]:
        """The messages with a routing key that were received so far."""
        return list(self._taken.get(routing_key, ()))

    async def _take(self, message: AbstractIncomingMessage) -> None:
        async with self._news:
            delivery = Delivery(json.loads(message.body), dict(message.headers))
            self._taken.setdefault(message.routing_key or "", []).append(delivery)
            self._news.notify_all()
