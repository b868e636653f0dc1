"""Whose turn it is and what time it is there: processes that stand still, clocks that go their own way, one source of chance."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, TypeVarTuple, Unpack
from unittest import mock

from tests.support.fakes.virtual_time import GRID, TimelessLoop

Values = TypeVarTuple("Values")

MOST_TURNS = 50_000
"""Callbacks at one moment of the loop's time, above which something runs in circles."""
FEW_TASKS = 64
"""Tasks of a process that are kept before those that are done are looked for."""


class Process:
    """What runs in one process: its tasks, its clock, and whether it is stopped."""

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(PROCESS.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = FEW_TASKS
        self.stopped = False
        self.dead = False
        self.number: Callable[[], int] = lambda: 0
        """What its locks carry."""
        self.away_until: Callable[[], float] = lambda: 0.0
        """When it can reach the database again, by the loop's time."""
        self.doomed = False
        """It is about to die of what it has done."""
        self.ahead = 0.0
        """Seconds by which its clock differs from the others'."""
        self.frozen: list[Turn] = []

    def began(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done, and a little longer."""
        self.tasks.append(task)
        if len(self.tasks) > self._most_tasks:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._most_tasks = 2 * len(self.tasks) + FEW_TASKS


class Turn(asyncio.TimerHandle):
    """One callback; without what the standard library keeps of it for debugging."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback, self._args, self._context = callback, args, context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<{self._callback!r} {self._args!r}>"

    def cancel(self) -> None:
        """Let its moment pass."""
        self._cancelled = True


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class SimulatedLoop(TimelessLoop):
    """One loop for all processes of a world. The callbacks of a stopped process wait until it continues."""

    get_debug = staticmethod(bool)
    """False; the standard library asks for every future."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.turns = 0
        self._world = Context()
        self._soon: deque[Turn] = deque()
        self._ready = self._soon
        self._timers: list[tuple[float, int, Turn]] = []
        self._numbers = count()
        self._still: list[Process] = []
        self.set_task_factory(self._make_task)

    def call_soon(self, callback: Callable[[Unpack[Values]], object], *args: *Values, context: Context | None = None) -> asyncio.Handle:
        """Call in the next turn."""
        turn = Turn(callback, args, copy_context() if context is None else context)
        self._soon.append(turn)
        return turn

    def call_at(
        self, when: float, callback: Callable[[Unpack[Values]], object], *args: *Values, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a moment of the grid, not before the one that is asked for; those of one moment in the order in which they came."""
        turn = Turn(callback, args, copy_context() if context is None else context)
        heappush(self._timers, (math.ceil(when * GRID) / GRID, next(self._numbers), turn))
        return turn

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Values]], object], *args: *Values, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after so many seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def world_later(self, seconds: float, callback: Callable[[Unpack[Values]], object], *args: *Values) -> asyncio.TimerHandle:
        """Call something that belongs to no process."""
        return self.call_at(self.now + seconds, callback, *args, context=self._world)

    def advance(self, moment: float) -> None:
        """Run what is due until a moment that may lie ahead; while it is entered."""
        while True:
            self._run_ready()
            if not self._next(moment):
                break
        self.now = max(self.now, moment)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be the loop that runs, until the end of the block."""
        with self._entered():
            yield

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of a process."""
        return self.create_task(coroutine, context=process.context)

    def stop_process(self, process: Process) -> None:
        """Let a process stand still."""
        process.stopped = True
        self._still.append(process)

    def resume(self, process: Process) -> None:
        """Let a process continue with everything that has come for it."""
        if process.stopped:
            process.stopped = False
            self._still.remove(process)
            self._soon.extend(process.frozen)
            process.frozen.clear()

    def kill(self, process: Process) -> None:
        """End a process; its tasks unwind without any effect on others."""
        process.dead = True
        self.resume(process)
        while process.tasks:
            for task in process.tasks:
                task.cancel()
            self.advance(self.now)
            process.tasks = [task for task in process.tasks if not task.done()]

    def close(self) -> None:
        """Forget everything."""
        self._soon.clear()
        self._timers.clear()
        super().close()

    def _run_ready(self) -> None:
        """Run what is ready until nothing is."""
        soon, still, turns = self._soon, self._still, 0
        while soon:
            turn = soon.popleft()
            if turn._cancelled or (still and self._put_aside(turn)):
                continue
            turns += 1
            try:
                turn._context.run(turn._callback, *turn._args)
            except BaseException as error:  # noqa: BLE001 - the world tells of it
                self.call_exception_handler({"message": f"{turn!r} failed", "exception": error})
            if turns > MOST_TURNS:
                raise AssertionError(f"Something runs in circles: {turn!r}")
        self.turns += turns

    def _put_aside(self, turn: Turn) -> bool:
        process = turn._context.get(PROCESS)
        if process is None or not process.stopped:
            return False
        process.frozen.append(turn)
        return True

    def _next(self, moment: float) -> bool:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers or timers[0][0] > moment:
            return False
        when, _, turn = heappop(timers)
        self.now = max(self.now, when)
        self._soon.append(turn)
        return True

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.began(task)
        return task


class Time:
    """Replaces the module `time` in the relay's modules."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Return the clock of the process that asks."""
        process = PROCESS.get()
        return self._loop.now if process is None else self._loop.now + process.ahead

    time = monotonic


class Uuids:
    """Replaces the module `uuid`."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def uuid4(self) -> str:
        """Return an id by chance."""
        return f"{self._chance.getrandbits(128):032x}"


@contextmanager
def standing_in(clock: Time, chance: Random, others: Mapping[str, object]) -> Iterator[None]:
    """Let every module of the relay take time and chance from the simulation, and the other named objects from their substitutes."""
    instead = {"time": (time, clock), "random": (random, chance), "uuid": (uuid, Uuids(chance))}
    patches: list[Any] = [mock.patch(name, by) for name, by in others.items()]
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
