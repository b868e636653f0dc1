"""Moves due messages with a key to the queue, and remembers where the next look for them begins."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from relay import events
from relay.events.schedules import KeyFails, KeyRecovered, KeysFolded
from relay.maintenance.schedules import FailureReports

REST = 10
"""Pause after a look at all that waits, as a multiple of the seconds that it took. It walks past messages that were folded and that an old
snapshot keeps: 0.2 s for each million of them."""


class NextFold(NamedTuple):
    """The result of a look at what waits."""

    due_in: float | None
    """Seconds until the next message is due; None without one."""
    since: float
    """Time in seconds since 1970 before which no message is due that could be seen."""
    took: float
    """Seconds that the look took."""


class Folded(NamedTuple):
    """The result of a fold."""

    messages: int
    """How many messages the fold took."""
    superseded: int
    """How many of them were replaced."""
    bundled: int
    """How many of them were sent within another."""
    due_in: float | None
    """As in `NextFold`."""
    since: float
    """As in `NextFold`."""


class FoldStore(Protocol):
    """The statements behind folds; each may raise StoreError."""

    async def fold_in(self, since: float) -> NextFold:
        """Look for the next message with a key that is due since this time."""

    async def fold_keys(self, since: float) -> Folded:
        """Move messages with a key to the queue that are due since this time."""

    async def failing_keys(self) -> Mapping[str, str]:
        """Why keys fail, by name."""


class Folds:
    """Moves due messages with a key to the queue, and reports what happened to them.

    A fold begins where the last look or fold saw the first message. A message of a transaction that was open meanwhile may be due
    before that. A look at all that waits finds it. Each look is one, unless that takes long.

    Args:
        store: looks and folds.
        emit: takes counts and failures.
    """

    def __init__(self, store: FoldStore, emit: events.Sink) -> None:
        self._store = store
        self._emit = emit
        self._failures = FailureReports(emit, fails=KeyFails, recovers=KeyRecovered)
        self._since = -math.inf
        self._rest_until = 0.0

    async def due_in(self) -> float | None:
        """Look when the next message is due; return in how many seconds, None without one."""
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
        """Where the next look begins; not behind what another look has found meanwhile."""
        self._since = since if self._since == before else min(self._since, since)
