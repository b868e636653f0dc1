"""Advances time in tests by moving every pending deadline earlier; the database clock is not changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from relay.testing.database import OutboxDatabase

_SHIFTS: Final = ("shift_messages", "shift_keyed", "shift_dedup", "shift_schedules", "shift_relays", "shift_lanes")


class Clock:
    """Advances time for all committed rows of the queue.

    Args:
        database: the test's own connection.
        running: returns ids of relays whose locks must not expire.
        before: called before time advances.
        passed: called after time has advanced.
    """

    def __init__(
        self, database: OutboxDatabase, *, running: Callable[[], list[int]], before: Callable[[], None], passed: Callable[[], None]
    ) -> None:
        self._database = database
        self._running = running
        self._before = before
        self._passed = passed

    def advance(self, by: timedelta) -> None:
        """Advance time: deadlines within `by` are due when this returns.

        Deadlines are `available_at`, `expires_at`, retry waits, locks of killed relays, collecting and dedup times of keys, and ticks.
        Relays sweep, tick and fold as often as they would within that time. Only committed rows move; rows of an open transaction and the
        archive do not.

        Raises:
            TypeError: `by` is not a timedelta.
            ValueError: `by` is negative.
            TestDatabaseError: another connection has locked rows of the queue.
        """
        if not isinstance(by, timedelta):
            raise TypeError(f"Time advances by a timedelta, not by {type(by).__name__}: timedelta(hours=2).")
        if by < timedelta():
            raise ValueError(f"Time does not go back: {by} is negative.")
        self._before()
        values = {"by": by, "spared": self._running()}
        self._database.run(*_SHIFTS, values=values)
        self._database.run("carry_out")
        self._passed()

    def advance_to_next(self) -> timedelta:
        """Advance time to the next deadline, and return by how much.

        Raises:
            AssertionError: there is no deadline.
            TestDatabaseError: another connection has locked rows of the queue.
        """
        __tracebackhide__ = True
        seconds = self._database.row("read_next", {"spared": self._running()})[0]
        if seconds is None:
            raise AssertionError("Nothing waits for a time: no message with available_at, no lock, no key, no schedule.")
        by = timedelta(seconds=max(0.0, seconds)) + timedelta(microseconds=1)
        self.advance(by)
        return by
