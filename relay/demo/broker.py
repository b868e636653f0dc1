"""The receiving side of the example: exchanges, a queue, and a consumer that records each delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from relay.demo.journal import Journal

EXCHANGE: Final = "shop"
"""The exchange from which the consumer's queue gets messages."""
NOWHERE: Final = "shop.audit"
"""An existing exchange without a binding."""
MISSING: Final = "shop.archive"
"""An exchange that is never declared."""
_QUEUE: Final = "shop.orders"
_LAST: Final = "last"
"""Type of the message that tells the consumer to stop."""


class Consumer:
    """Declares exchanges and a queue (a relay declares nothing), and records each delivery in the consumer's ledger.

    Args:
        url: the broker.
        journal: the ledger.
        clock: returns seconds since 1970, by the database's clock.
    """

    def __init__(self, url: str, journal: Journal, clock: Callable[[], float]) -> None:
        self._url = url
        self._journal = journal
        self._clock = clock
        self._connection: AbstractConnection | None = None
        self._next = 1
        self._held_back: dict[int, tuple[AbstractIncomingMessage, float]] = {}
        self._finished = asyncio.Event()
        self.deliveries = 0

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect(self._url)
        self._channel: AbstractChannel = await self._connection.channel()
        exchange = await self._channel.declare_exchange(EXCHANGE, "topic", durable=True)
        await self._channel.declare_exchange(NOWHERE, "topic", durable=True)
        self._queue: AbstractQueue = await self._channel.declare_queue(_QUEUE, durable=True)
        await self._queue.bind(exchange, "order.#")
        self._tag = await self._queue.consume(self._take, no_ack=True)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def finish(self) -> None:
        """Return when every message that is now in the queue is recorded."""
        # A queue keeps its order, so this message is delivered after all others.
        await self._channel.default_exchange.publish(aio_pika.Message(b"", type=_LAST), routing_key=_QUEUE)
        await self._finished.wait()
        await self._queue.cancel(self._tag)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        """Record a delivery. Each delivery is handled in a task of its own, so delivery tags are used to restore the order of arrival."""
        self._held_back[message.delivery_tag or 0] = message, self._clock()
        while self._next in self._held_back:
            self._note(*self._held_back.pop(self._next))
            self._next += 1

    def _note(self, message: AbstractIncomingMessage, at: float) -> None:
        if message.type == _LAST:
            self._finished.set()
            return
        self._journal.note(
            id=str(message.headers.get("x-relay-id")),
            at=at,
            message_id=message.message_id,
            routing_key=message.routing_key,
            bytes=message.body_size,
        )
        self.deliveries += 1
