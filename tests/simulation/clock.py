"""Whose turn it is and what time it is there: processes that stand still, clocks that go their own way, one source of chance."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from random import Random
from typing import Any
from unittest import mock

from tests.support.timeless import TimelessLoop

MOST_TURNS = 50_000
"""Callbacks at one moment of the loop's time, above which something runs in circles."""


class Process:
    """What runs in one process: its tasks, its clock, and whether it stands still."""

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(PROCESS.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.stopped = False
        self.dead = False
        self.number: Callable[[], int] = lambda: 0
        """What its locks carry."""
        self.doomed = False
        """It is about to die of what it has done."""
        self.ahead = 0.0
        """Seconds by which its clock differs from the others'."""
        self.frozen: list[Any] = []


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class SimulatedLoop(TimelessLoop):
    """One loop for all processes of a world; callbacks of a process that stands still wait until it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.turns = 0
        self._world = Context()
        self._moment = (0.0, 0)
        self.set_task_factory(self._make_task)

    def world_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call something that belongs to no process."""
        return self.call_later(seconds, callback, context=self._world)

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of a process."""
        return self.create_task(coroutine, context=process.context)

    def resume(self, process: Process) -> None:
        """Let a process go on with all that has come for it."""
        process.stopped = False
        loop: Any = self
        loop._ready.extend(process.frozen)
        process.frozen.clear()

    def kill(self, process: Process) -> None:
        """End a process; its tasks unwind without any effect on others."""
        process.dead = True
        self.resume(process)
        while process.tasks:
            for task in list(process.tasks):
                task.cancel()
            self.advance(self.now)

    def _run_handle(self, handle: Any) -> None:
        process = handle._context.get(PROCESS)
        if process is not None and process.stopped:
            process.frozen.append(handle)
            return
        self.turns += 1
        if self.turns - self._moment[1] > MOST_TURNS:
            if self._moment[0] == self.now:
                raise AssertionError(f"Something runs in circles: {handle!r}")
            self._moment = (self.now, self.turns)
        handle._run()

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(process.tasks.pop)
        return task


class Time:
    """Stands for the module `time` in the relay's modules."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Return the clock of the process that asks."""
        process = PROCESS.get()
        return self._loop.now + (process.ahead if process else 0.0)

    time = monotonic


class Uuids:
    """Stands for the module `uuid`."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def uuid4(self) -> uuid.UUID:
        """Return an id by chance."""
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)


@contextmanager
def standing_in(clock: Time, chance: Random, connect: Callable[..., Any], log: type) -> Iterator[None]:
    """Let every module of the relay take time, chance and connections to the broker from the simulation, and log nothing."""
    instead = {"time": (time, clock), "random": (random, chance), "uuid": (uuid, Uuids(chance))}
    patches: list[Any] = [mock.patch("relay.amqp.supervisor.connect", connect), mock.patch("relay.app.LogSink", log)]
    for name, module in sorted(sys.modules.items()):
        if name.startswith("relay."):
            patches += [mock.patch.object(module, word, by) for word, (real, by) in instead.items() if getattr(module, word, None) is real]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
