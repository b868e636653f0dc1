"""Runs tasks at intervals, one after the other."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay import events
from relay.errors import StoreError

JITTER_SHARE = 0.1
"""Share of its interval by which a task runs sooner or later, so that relays started together do not sweep together."""
CONTINUE_SECONDS = 5.0
"""Until a task continues that has left something to do, which it does in small steps so that nothing waits for it."""
MAX_RETRY_SECONDS = 2.0
"""Longest wait until a task that failed is tried again."""


@dataclass(slots=True, eq=False)
class PeriodicTask:
    """A task that runs at an interval, and again soon after a run that left something to do."""

    name: str
    """What logs and metrics call it."""
    interval: float
    """Seconds between two runs."""
    do: Callable[[], Awaitable[bool | None]]
    """One run; true where more can be done. May raise StoreError."""
    due_at: float = 0.0
    """When it runs next, by the monotonic clock."""


class PeriodicTasks:
    """Runs tasks one after the other, each when it is due; a task that fails is reported and tried again.

    Args:
        tasks: in the order in which they run where several are due.
        emit: takes failures.
    """

    def __init__(self, *tasks: PeriodicTask, emit: events.Sink) -> None:
        self._tasks = tasks
        self._emit = emit

    async def run(self) -> None:
        """Run what is due, for ever."""
        while True:
            for task in self._tasks:
                if task.due_at <= time.monotonic():
                    await self._try(task)
            await asyncio.sleep(max(0.0, min(task.due_at for task in self._tasks) - time.monotonic()))

    async def _try(self, task: PeriodicTask) -> None:
        try:
            interval = CONTINUE_SECONDS if await task.do() else task.interval
        except StoreError as error:
            self._emit(events.MaintenanceFailed(task.name, str(error)))
            task.due_at = time.monotonic() + min(task.interval, MAX_RETRY_SECONDS)
            return
        task.due_at = time.monotonic() + interval * (1 - JITTER_SHARE + 2 * JITTER_SHARE * random.random())  # noqa: S311 - jitter
