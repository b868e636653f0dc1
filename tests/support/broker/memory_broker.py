"""The broker of the simulations with a publisher on it, behind the same few methods as RabbitMQ's: what holds is shown on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

from relay.message import Claim, PublishResult
from tests.simulation.broker import FakeBroker
from tests.simulation.clock import PROCESS, Process, SimulatedLoop, Time, standing_in
from tests.simulation.relay import STAND_INS
from tests.support.broker.publishing import Publishing, claim, publishing

URL = "amqp://memory/"
FORBIDDEN = "amq.rabbitmq.trace"
"""An internal exchange, to which no login may publish."""


class InMemory:
    """The broker of the simulations; as a consumer it keeps what reaches queues."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.broker = FakeBroker(loop, Random(1), self, lambda *_what: None)
        self.publisher: Publishing
        self._taken: list[str] = []
        self._exchanges = 0

    def written(self, id_: str, process: Process | None, at: float) -> None:
        """See `Consumer`."""

    def delivered(self, id_: str) -> None:
        """See `Consumer`."""
        self._taken.append(id_)

    def acknowledged(self, id_: str) -> None:
        """See `Consumer`."""

    def unheard(self, id_: str) -> None:
        """See `Consumer`."""

    async def exchange(self, *, full: bool = False) -> Callable[[], Claim]:
        """See `Broker`."""
        self._exchanges += 1
        name = f"exchange {self._exchanges}"
        self.broker.become(name, "full" if full else "well")
        return lambda: claim(name)

    async def send(self, claims: Iterable[Claim]) -> list[PublishResult]:
        """See `Broker`."""
        return await self.publisher.send(claims)

    async def taken(self) -> list[str]:
        """See `Broker`."""
        return self._taken

    @asynccontextmanager
    async def hushed(self) -> AsyncIterator[None]:
        """What is published now is not confirmed."""
        names = [f"exchange {number + 1}" for number in range(self._exchanges)]
        for name in names:
            self.broker.become(name, "silent")
        yield
        for name in names:
            self.broker.become(name, "well")

    async def drop(self) -> None:
        """End the connection."""
        self.broker.drop(URL)

    @asynccontextmanager
    async def alarm(self) -> AsyncIterator[None]:
        """The broker blocks who publishes."""
        self.broker.block(True)
        yield
        self.broker.block(False)


def in_memory(case: Callable[[InMemory], Awaitable[None]]) -> None:
    """Run a case on it, on a loop without time."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        PROCESS.set(Process())
        memory, clock = InMemory(loop), Time(loop)
        memory.broker.become("missing", "missing")
        memory.broker.become(FORBIDDEN, "forbidden")
        with standing_in(clock, Random(2), {**STAND_INS, "relay.amqp.supervisor.connect": memory.broker.connect}):
            async with publishing(URL, clock=clock.monotonic) as memory.publisher:
                await case(memory)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())
