"""An event loop that never waits and looks at no clock: when nothing is ready its time jumps to the next timer."""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, ParamSpec, TypeVarTuple, Unpack

Parameters = ParamSpec("Parameters")
Values = TypeVarTuple("Values")
GRID = 2**20
"""Moments of a second that the clock distinguishes.

A real clock advances in steps too; a pause shorter than a step must not become zero.
"""


class TimelessLoop(asyncio.BaseEventLoop):
    """Runs timers in their order, at once; a run is the same each time. It has no sockets, processes or threads."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        """Seconds since the loop was made, all of them skipped."""
        return self.now

    def call_at(
        self, when: float, callback: Callable[[Unpack[Values]], object], *args: *Values, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a moment of the grid, not before the one that is asked for."""
        return super().call_at(math.ceil(when * GRID) / GRID, callback, *args, context=context)

    def advance(self, moment: float) -> None:
        """Run what is due until a moment that may lie ahead; from outside the loop."""
        loop: Any = self
        with self._entered():
            while loop._ready or self._next(moment):
                self._run_ready()
            self.now = max(self.now, moment)

    def _run_once(self) -> None:
        loop: Any = self
        if loop._ready or loop._stopping or self._next(float("inf")):
            self._run_ready()
            return
        raise RuntimeError("Everything waits, and no timer will end it.")

    def _run_ready(self) -> None:
        loop: Any = self
        for _ in range(len(loop._ready)):
            handle = loop._ready.popleft()
            if not handle._cancelled:
                self._run_handle(handle)

    def _run_handle(self, handle: Any) -> None:
        """Run a callback; a subclass can set aside those of a suspended process here."""
        handle._run()

    def _next(self, moment: float) -> bool:
        """Make the next timer that is due by then ready; False if there is none."""
        loop: Any = self
        scheduled = loop._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not scheduled or scheduled[0]._when > moment:
            return False
        timer = heapq.heappop(scheduled)
        timer._scheduled = False
        self.now = max(self.now, timer._when)
        loop._ready.append(timer)
        return True

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """As `run_forever` does around its turns."""
        loop: Any = self
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=loop._asyncgen_firstiter_hook, finalizer=loop._asyncgen_finalizer_hook)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""


def timeless(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run a test on a loop on which every sleep is over at once."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        with asyncio.Runner(loop_factory=TimelessLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
