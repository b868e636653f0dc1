"""The broker of relay.testing with a publisher on it, behind the same few methods as RabbitMQ's: what holds is shown on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from relay.message import Claim, PublishResult
from relay.testing.fake_broker.broker import Broker
from tests.support.broker.publishing import Publishing, claim


class Double:
    """The broker that applications test with; the real publisher speaks to it over a socket."""

    def __init__(self, broker: Broker, publisher: Publishing, prefix: str) -> None:
        self.broker = broker
        self.publisher = publisher
        self._prefix = prefix
        self._names: list[str] = []

    async def exchange(self, *, full: bool = False) -> Callable[[], Claim]:
        """See `Broker`."""
        name = f"{self._prefix}.{len(self._names)}"
        self._names.append(name)
        self.broker.declare_exchange(name, "direct")
        self.broker.declare_queue(name, max_length=1 if full else None)
        self.broker.bind(name, name, "key")
        if full:
            await self.send([claim(name, "key")])
        return lambda: claim(name, "key")

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """See `Broker`."""
        return await self.publisher.send(claims)

    async def taken(self) -> list[str]:
        """See `Broker`."""
        return [str(message.message_id) for name in self._names for message in self.broker.purge(name)]

    @asynccontextmanager
    async def hushed(self) -> AsyncIterator[None]:
        """What is published now is not confirmed."""
        for name in self._names:
            self.broker.silence(name)
        yield
        for name in self._names:
            self.broker.answer(name)

    async def drop(self) -> None:
        """End the connection."""
        self.broker.drop()

    @asynccontextmanager
    async def alarm(self) -> AsyncIterator[None]:
        """The broker blocks who publishes."""
        self.broker.block()
        yield
        self.broker.unblock()
