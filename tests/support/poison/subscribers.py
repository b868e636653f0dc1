"""MQTT and STOMP subscribers of a poison world, which must stay connected: what has come to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final

from tests.support.broker.mqtt import Message, subscribed_by_mqtt
from tests.support.broker.stomp import ACKS, VERSIONS, subscribed_by_stomp
from tests.support.database.queue import until
from tests.support.poison.lab import WORLDS, Ports

SUBSCRIPTIONS: Final = {"MQTT": 2, **{f"STOMP {ack}": 1 for ack in ACKS}}
"""How many queues each has; together they are two connections. MQTT does not say from which queue a message came."""
Heard = tuple[str, bytes]
"""Routing key and body: MQTT has no more of a message."""


class Subscribers:
    """What came to the subscribers of a world."""

    def __init__(self) -> None:
        self._came: dict[str, Counter[Heard]] = {how: Counter() for how in SUBSCRIPTIONS}
        self._ended: list[str] = []
        self._more = asyncio.Event()

    async def listen(self, messages: AsyncIterator[Message]) -> None:
        """Count messages for as long as the connection lives."""
        try:
            async for how, key, body in messages:
                self._came[how][key, body] += 1
                self._more.set()
        except (OSError, EOFError, ValueError) as error:
            self._ended.append(f"a subscriber's connection ended: {error!r}")
            self._more.set()

    async def wait_for(self, owed: Mapping[Heard, int], seconds: float) -> None:
        """Wait until so many of each have come to every subscription, or a connection has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended and any(self._lacks(heard, least) for heard, least in owed.items()):
                    self._more.clear()
                    await self._more.wait()

    def _lacks(self, heard: Heard, least: int) -> bool:
        return any(came[heard] < least * SUBSCRIPTIONS[how] for how, came in self._came.items())

    def mistakes(self, owed: Mapping[Heard, tuple[int, int]]) -> Iterator[str]:
        """Connections that have ended, and what came more or less often than it must."""
        yield from self._ended
        if self._ended:
            return
        for how, came in self._came.items():
            for heard in owed.keys() | came.keys():
                least, most = (copies * SUBSCRIPTIONS[how] for copies in owed.get(heard, (0, 0)))
                if not least <= came[heard] <= most:
                    yield f"{came[heard]} copies by {how}, not {least} to {most}: {heard!s:.200}"


@asynccontextmanager
async def subscribed(ports: Ports, world: str, found: Subscribers) -> AsyncIterator[None]:
    """Listen to a world, with versions of STOMP and sessions of MQTT that take turns among the worlds."""
    number = [*WORLDS].index(world)
    async with AsyncExitStack() as stack:
        mqtt = partial(subscribed_by_mqtt, ports.mqtt, world, clean=number % 2 == 0)
        stomp = partial(subscribed_by_stomp, ports.stomp, world, VERSIONS[number % len(VERSIONS)])
        sources = [await _let_in(stack, connect) for connect in (mqtt, stomp)]
        tasks = [asyncio.create_task(found.listen(source)) for source in sources]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _let_in(
    stack: AsyncExitStack, connect: Callable[[], AbstractAsyncContextManager[AsyncIterator[Message]]]
) -> AsyncIterator[Message]:
    """Connect, once links that come back have left room below the limit of a vhost."""
    found: list[AsyncIterator[Message]] = []

    async def is_let_in() -> bool:
        with suppress(ValueError):
            found.append(await stack.enter_async_context(connect()))
        return bool(found)

    await until(is_let_in)
    return found[0]
