"""An engine between fakes, as the tests of it start and watch it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from relay import events
from relay.engine.loop import Engine
from relay.engine.retry import RetryPolicy
from relay.engine.window import Window
from relay.message import Batch
from tests.support.fakes.adapters import FakeIntake, FakePublisher, FakeSettler, FakeWakeup

BATCH = 10
"""Messages of one claim, at the most."""


class Rig:
    """An engine between fakes."""

    def __init__(self, *script: Batch | Exception | None, window: int = 100, window_bytes: int = 1_000_000, looks: int = 0) -> None:
        self.intake = FakeIntake(*script)
        self.publisher = FakePublisher()
        self.settler = FakeSettler()
        self.wakeup = FakeWakeup(looks=looks)
        self.window = Window(window=window, window_bytes=window_bytes)
        self.told: list[events.Event] = []
        self.nudged = asyncio.Event()
        self.engine = Engine(
            intake=self.intake,
            publisher=self.publisher,
            settler=self.settler,
            wakeup=self.wakeup,
            window=self.window,
            policy=RetryPolicy,
            batch_size=BATCH,
            nudged=self.nudged,
            emit=self.told.append,
        )

    @contextlib.asynccontextmanager
    async def running(self, *, drain: float = 60.0) -> AsyncIterator[asyncio.Task[None]]:
        """Run until the block ends, then stop and wait for the end."""
        task = asyncio.create_task(self.engine.run(drain_seconds=drain))
        try:
            yield task
        finally:
            self.engine.stop()
            await task

    async def until_idle(self) -> None:
        """Wait until the engine rests."""
        await self.wakeup.asleep.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something has come about in the fakes."""
        while not condition():  # noqa: ASYNC110 - on a timeless loop this is a step, not a wait
            await asyncio.sleep(0.001)

    def of(self, kind: type[events.Event]) -> list[events.Event]:
        """Events of a kind."""
        return [event for event in self.told if type(event) is kind]
