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
"""Random share of the interval by which a task runs earlier or later, so that relays started together do not sweep together."""
CONTINUE_SECONDS = 5.0
"""Seconds until a task with work left runs again. Such a task works in small steps, so that no other task waits long."""
MAX_RETRY_SECONDS = 2.0
"""Longest wait in seconds before a failed task is retried."""


@dataclass(slots=True, eq=False)
class PeriodicTask:
    """A task that runs at an interval, and again soon after a run that left work."""

    name: str
    """The name in logs and metrics."""
    interval: float
    """Seconds between two runs."""
    do: Callable[[], Awaitable[bool | None]]
    """Runs the task once; returns true if work is left. May raise StoreError."""
    due_at: float = 0.0
    """Monotonic time of the next run."""


class PeriodicTasks:
    """Runs tasks one after the other, each when it is due; reports and retries a failed task.

    Args:
        tasks: the tasks, which run in this order when several are due.
        emit: sink of failures.
        rest: shortest pause after a run, as a multiple of the run's duration.
    """

    def __init__(self, *tasks: PeriodicTask, emit: events.Sink, rest: float = 0.0) -> None:
        self._tasks = tasks
        self._emit = emit
        self._rest = rest

    async def run(self) -> None:
        """Run due tasks, for ever."""
        while True:
            for task in self._tasks:
                if task.due_at <= time.monotonic():
                    await self._try(task)
            await asyncio.sleep(max(0.0, min(task.due_at for task in self._tasks) - time.monotonic()))

    async def _try(self, task: PeriodicTask) -> None:
        began = time.monotonic()
        wait = await self._carry_out(task)
        ended = time.monotonic()
        task.due_at = ended + max(wait, self._rest * (ended - began))

    async def _carry_out(self, task: PeriodicTask) -> float:
        """Run a task; return the seconds until it is due again."""
        try:
            interval = CONTINUE_SECONDS if await task.do() else task.interval
        except StoreError as error:
            self._emit(events.MaintenanceFailed(task.name, str(error)))
            return min(task.interval, MAX_RETRY_SECONDS)
        return interval * (1 - JITTER_SHARE + 2 * JITTER_SHARE * random.random())  # noqa: S311 - jitter
