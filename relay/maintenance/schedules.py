"""Has the database carry out what is due at times that it names, schedules and messages with a key; nothing is asked of it before."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping

from relay import events
from relay.errors import StoreError
from relay.events.schedules import KeyFails, KeyGoesOn, KeysFolded, ScheduleFails, ScheduleGoesOn

Folded = tuple[int, int, int, float | None]
"""Messages that a fold took, how many were replaced, how many sent within another, and the seconds until the next is due, None for none."""
PAUSE = 1.0
"""Seconds until another look, where the last one failed, or what is due is in another relay's hands."""


class Schedules:
    """Waits for the next tick, however often another one is named, and has it carried out.

    Args:
        carry_out: inserts what schedules owe; returns how many messages, and the seconds until the next tick, None for none.
        inserted: is told that there are new messages.
        emit: takes failures.
        task: what failures are reported as.
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
        self._named = asyncio.Event()

    def name(self, seconds: float | None) -> None:
        """The next tick is in so many seconds; None: there is none."""
        self._due_at = math.inf if seconds is None else time.monotonic() + seconds
        self._named.set()

    async def run(self) -> None:
        """Carry out what is due, for ever."""
        while True:
            while (left := max(self._due_at, self._not_before) - time.monotonic()) > 0:
                self._named.clear()
                await _heard(self._named, left)
            await self._turn()

    async def _turn(self) -> None:
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
        self.name(seconds)


class Folds:
    """Has messages with a key sent, and tells what became of them.

    Args:
        fold: see `Folded`.
        failing: why keys could not be sent, by name.
        emit: takes what it did.
    """

    def __init__(
        self, fold: Callable[[], Awaitable[Folded]], failing: Callable[[], Awaitable[Mapping[str, str]]], emit: events.Sink
    ) -> None:
        self._fold = fold
        self._failing = failing
        self._emit = emit
        self._told = Failing(emit, fails=KeyFails, goes_on=KeyGoesOn)

    async def carry_out(self) -> tuple[int, float | None]:
        """For `Schedules`."""
        folded, superseded, bundled, due_in = await self._fold()
        if folded:
            self._emit(KeysFolded(folded, superseded, bundled))
        self._told.tell(await self._failing())
        return folded, due_in


class Failing:
    """Tells once of each schedule or key that fails, again where the reason is another, and that it does no more."""

    def __init__(
        self,
        emit: events.Sink,
        *,
        fails: Callable[[str, str], events.Event] = ScheduleFails,
        goes_on: Callable[[str], events.Event] = ScheduleGoesOn,
    ) -> None:
        self._emit = emit
        self._fails = fails
        self._goes_on = goes_on
        self._told: Mapping[str, str] = {}

    def tell(self, failing: Mapping[str, str]) -> None:
        """Take the reasons of all that fail now, by name."""
        before, self._told = self._told, failing
        for name in sorted(before.keys() | failing.keys()):
            if before.get(name) != (why := failing.get(name)):
                self._emit(self._goes_on(name) if why is None else self._fails(name, why))


async def _heard(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after so long."""
    try:
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            await event.wait()
    except TimeoutError:
        return
