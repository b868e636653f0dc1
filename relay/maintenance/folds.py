"""Moves due messages with a key to the queue, and remembers where the next scan for them begins."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from relay import events
from relay.events.schedules import KeyFails, KeyRecovered, KeysFolded
from relay.maintenance.schedules import FailureReports

REST = 10
"""Pause after a scan of all waiting messages, as a multiple of the scan's duration. The scan also passes over folded messages that an old
snapshot keeps, which takes 0.2 s for each million of these messages."""


class NextFold(NamedTuple):
    """The result of a scan of waiting messages."""

    due_in: float | None
    """Seconds until the next message is due; None if no message waits."""
    since: float
    """A time in seconds since 1970; before it, no visible message is due."""
    took: float
    """Seconds that the scan took."""


class Folded(NamedTuple):
    """The result of a fold."""

    messages: int
    """How many messages the fold removed from the waiting messages."""
    superseded: int
    """How many of these messages were replaced by newer ones."""
    bundled: int
    """How many of these messages are sent within another message."""
    due_in: float | None
    """As in `NextFold`."""
    since: float
    """As in `NextFold`."""


class FoldStore(Protocol):
    """The statements behind folds; each may raise StoreError."""

    async def fold_in(self, since: float) -> NextFold:
        """Scan for the next message with a key, from this due time on."""

    async def fold_keys(self, since: float) -> Folded:
        """Move due messages with a key to the queue, from this due time on."""

    async def failing_keys(self) -> Mapping[str, str]:
        """Why keys fail, by name."""


class Folds:
    """Moves due messages with a key to the queue, and reports what happened to them.

    A fold begins where the last scan or fold saw the first message. A transaction that was open meanwhile may commit a message that is
    due earlier. Only a full scan finds such a message. Every scan is a full scan, unless full scans take long.

    Args:
        store: scans and folds.
        emit: sink of counts and failures.
    """

    def __init__(self, store: FoldStore, emit: events.Sink) -> None:
        self._store = store
        self._emit = emit
        self._failures = FailureReports(emit, fails=KeyFails, recovers=KeyRecovered)
        self._since = -math.inf
        self._rest_until = 0.0

    async def due_in(self) -> float | None:
        """Find out when the next message is due; return the seconds until then, or None if no message waits."""
        before, everything = self._since, time.monotonic() >= self._rest_until
        found = await self._store.fold_in(-math.inf if everything else before)
        if everything:
            self._rest_until = time.monotonic() + REST * found.took
        self._begin_at(found.since, before)
        return found.due_in

    async def carry_out(self) -> tuple[int, float | None]:
        """Run one fold; see `Schedules`."""
        before = self._since
        done = await self._store.fold_keys(before)
        self._begin_at(done.since, before)
        if done.messages:
            self._emit(KeysFolded(done.messages, done.superseded, done.bundled))
        self._failures.report(await self._store.failing_keys())
        return done.messages, done.due_in

    def _begin_at(self, since: float, before: float) -> None:
        """Set where the next scan begins, but never after a message that another scan has found meanwhile."""
        self._since = since if self._since == before else min(self._since, since)
