"""Advances time in tests by moving every pending deadline earlier; the database clock is not changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from relay.testing.database import OutboxDatabase

_SHIFTS: Final = ("shift_messages", "shift_keyed", "shift_dedup", "shift_schedules", "shift_relays", "shift_lanes")


class Clock:
    """Advances time for everything committed in the queue.

    Args:
        database: the test's own connection.
        running: ids of relays whose locks are not to expire.
        before: called before time advances.
        passed: called after it.
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

        That is `available_at` and `expires_at`, the waits of retries, locks that a killed relay left, keys that collect or are known, and
        ticks of schedules; relays sweep, tick and fold as they do in so much time. It moves what is committed, not what a transaction has
        still open, nor the archive.

        Raises:
            TypeError: `by` is no timedelta.
            ValueError: `by` is negative.
            TestDatabaseError: another connection holds rows of the queue.
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
            AssertionError: nothing waits for a time.
            TestDatabaseError: another connection holds rows of the queue.
        """
        __tracebackhide__ = True
        seconds = self._database.row("read_next", {"spared": self._running()})[0]
        if seconds is None:
            raise AssertionError("Nothing waits for a time: no message with available_at, no lock, no key, no schedule.")
        by = timedelta(seconds=max(0.0, seconds)) + timedelta(microseconds=1)
        self.advance(by)
        return by
