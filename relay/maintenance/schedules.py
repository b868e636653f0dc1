"""Runs due schedules or folds in the database, at the time that the database has named."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping

from relay import events
from relay.errors import StoreError
from relay.events.schedules import ScheduleFails, ScheduleRecovered

PAUSE = 1.0
"""Seconds before a retry after a failure, or while another relay runs the due tick."""


class Schedules:
    """Waits for the next tick and runs it. The time of the next tick may change meanwhile.

    Args:
        carry_out: inserts due messages; returns how many, and the seconds until the next tick (None without a tick).
        inserted: called when there are new messages.
        emit: sink of failures.
        task: the task's name in failures.
    """

    def __init__(
        self,
        *,
        carry_out: Callable[[], Awaitable[tuple[int, float | None]]],
        inserted: Callable[[], None],
        emit: events.Sink,
        task: str = "schedules",
    ) -> None:
        self._task = task
        self._carry_out = carry_out
        self._inserted = inserted
        self._emit = emit
        self._due_at = math.inf
        self._not_before = 0.0
        self._next_set = asyncio.Event()

    def set_next(self, seconds: float | None) -> None:
        """Set the seconds until the next tick; None means that no tick is due."""
        self._due_at = math.inf if seconds is None else time.monotonic() + seconds
        self._next_set.set()

    async def run(self) -> None:
        """Run due ticks, for ever."""
        while True:
            while (left := max(self._due_at, self._not_before) - time.monotonic()) > 0:
                self._next_set.clear()
                await _wait_for(self._next_set, left)
            await self._run_tick()

    async def _run_tick(self) -> None:
        try:
            inserted, seconds = await self._carry_out()
        except StoreError as error:
            self._emit(events.MaintenanceFailed(self._task, str(error)))
            self._not_before = time.monotonic() + PAUSE
            return
        if inserted:
            self._inserted()
        elif seconds is not None and seconds <= 0:
            self._not_before = time.monotonic() + PAUSE
        self.set_next(seconds)


class FailureReports:
    """Reports each failing schedule or key once, again if the reason changes, and once more when it recovers."""

    def __init__(
        self,
        emit: events.Sink,
        *,
        fails: Callable[[str, str], events.Event] = ScheduleFails,
        recovers: Callable[[str], events.Event] = ScheduleRecovered,
    ) -> None:
        self._emit = emit
        self._fails = fails
        self._recovers = recovers
        self._reported: Mapping[str, str] = {}

    def report(self, failing: Mapping[str, str]) -> None:
        """Report what changed, given the reasons of all current failures by name."""
        before, self._reported = self._reported, failing
        for name in sorted(before.keys() | failing.keys()):
            if before.get(name) != (why := failing.get(name)):
                self._emit(self._recovers(name) if why is None else self._fails(name, why))


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after this many seconds."""
    try:
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            await event.wait()
    except TimeoutError:
        return
