"""How a process ends: the first signal drains messages in flight, the second stops waiting for them, and a hanging process is abandoned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay import events

GRACE = 9.0
"""Seconds after the drain within which servers must answer. After a second signal, half as many."""


class Shutdown:
    """Ends a process step by step.

    Args:
        stop: set as soon as the process must end.
        drain: stops beginning new work.
        cut: stops waiting; None if the second signal abandons the process.
        seconds: returns the seconds from the first signal until the process is abandoned.
        in_flight: messages that are claimed and not settled.
        abandon: ends the process even if a server hangs; gets the number of messages in flight.
        emit: sink of events.

    """

    def __init__(
        self,
        *,
        stop: asyncio.Event,
        drain: Callable[[], None],
        cut: Callable[[], None] | None,
        seconds: Callable[[], float],
        in_flight: Callable[[], int],
        abandon: Callable[[int], None],
        emit: events.Sink,
    ) -> None:
        self._stop = stop
        self._drain = drain
        self._cut = cut
        self._seconds = seconds
        self._in_flight = in_flight
        self._abandon = abandon
        self._emit = emit
        self._signals = 0

    def signalled(self, name: str) -> None:
        """Drain at the first signal, and cut at each further signal. After each signal the remaining time is limited."""
        self._signals += 1
        if self._signals == 1:
            self._begin(name, "drain", self._seconds(), self._drain)
        elif self._cut is None:
            self._give_up()
        else:
            self._begin(name, "cut", GRACE / 2, self._cut)

    def leave(self, name: str) -> None:
        """Drain as after a signal, unless a signal has already arrived."""
        if not self._signals:
            self.signalled(name)

    def end(self, name: str) -> None:
        """Drain while nothing is in flight. The process is never abandoned, however long this takes."""
        self._stop.set()
        self._emit(events.Stopping(name, "drain", 0))
        self._drain()

    def _begin(self, name: str, mode: str, seconds: float, step: Callable[[], None]) -> None:
        self._stop.set()
        self._emit(events.Stopping(name, mode, self._in_flight()))
        asyncio.get_running_loop().call_later(seconds, self._give_up)
        step()

    def _give_up(self) -> None:
        self._abandon(self._in_flight())
