"""Exchanges, queues and bindings for a test, made and removed through aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue


class Declared(NamedTuple):
    """An exchange, a queue, and the key that leads from one to the other."""

    exchange: str
    queue: str
    routing_key: str


class Topology:
    """Declares on a connection of its own, and removes in the end what it declared.

    Args:
        url: the broker and vhost.
        prefix: begins the names that are not given.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self._made: list[tuple[str, str]] = []

    async def __aenter__(self) -> Self:
        self._connection: AbstractConnection = await aio_pika.connect(self._url)
        self._channel: AbstractChannel = await self._connection.channel()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            for what, name in reversed(self._made):
                await (self._channel.queue_delete(name) if what == "queue" else self._channel.exchange_delete(name))
        finally:
            await self._connection.close()

    async def declare(
        self,
        exchange: str | None = None,
        queue: str | None = None,
        *,
        routing_key: str = "key",
        kind: str = "direct",
        arguments: dict[str, Any] | None = None,
    ) -> Declared:
        """Declare a durable exchange and queue, bound by the key; the default exchange needs no binding, its key is the queue's name."""
        exchange = f"{self._prefix}.exchange" if exchange is None else exchange
        queue = f"{self._prefix}.queue" if queue is None else queue
        target = await self._declare_queue(queue, arguments)
        if exchange == "":
            return Declared("", queue, queue)
        await self.declare_exchange(exchange, kind=kind)
        await target.bind(exchange, routing_key)
        return Declared(exchange, queue, routing_key)

    async def declare_exchange(self, exchange: str, *, kind: str = "direct", internal: bool = False) -> str:
        """Declare a durable exchange that leads nowhere; return its name."""
        if exchange != "" and not exchange.startswith("amq."):
            await self._channel.declare_exchange(exchange, kind, durable=True, internal=internal)
            self._made.append(("exchange", exchange))
        return exchange

    async def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange while it is in use; a queue that it led to keeps what it has."""
        await self._channel.exchange_delete(exchange)
        self._made.remove(("exchange", exchange))

    async def drain(self, queue: str, count: int | None = None, *, seconds: float = 60) -> list[AbstractIncomingMessage]:
        """Take messages off a queue: with `count`, wait until at least as many have come; without, take what is there now.

        Raises:
            AssertionError: nothing came for `seconds`, and fewer than `count` by then.
        """
        source = await self._channel.get_queue(queue, ensure=False)
        if count is None:
            return [message async for message in _what_is_there(source)]
        return await _what_comes(source, count, seconds)

    async def waiting(self, queue: str) -> int:
        """Return how many messages are ready in the queue."""
        declared = await self._channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def has(self, queue: str, count: int = 1) -> bool:
        """Whether at least so many messages are ready in the queue."""
        return await self.waiting(queue) >= count

    async def _declare_queue(self, queue: str, arguments: dict[str, Any] | None) -> AbstractQueue:
        declared = await self._channel.declare_queue(queue, durable=True, arguments=arguments)
        self._made.append(("queue", queue))
        return declared


async def _what_is_there(queue: AbstractQueue) -> AsyncIterator[AbstractIncomingMessage]:
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        yield message


async def _what_comes(queue: AbstractQueue, count: int, seconds: float) -> list[AbstractIncomingMessage]:
    came: list[AbstractIncomingMessage] = []
    more = asyncio.Event()

    async def take(message: AbstractIncomingMessage) -> None:
        came.append(message)
        more.set()

    tag = await queue.consume(take, no_ack=True)
    try:
        while len(came) < count:
            await asyncio.wait_for(more.wait(), seconds)
            more.clear()
    except TimeoutError:
        pytest.fail(f"{len(came)} of {count} messages came to {queue.name}, and no more within {seconds:g} s")
    finally:
        await queue.cancel(tag)
    return came
