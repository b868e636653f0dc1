"""Messages of another cluster, as from a restored dump, get transaction ids of this one: all at start, some each minute afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from relay import events
from relay.aio import unless
from relay.errors import StoreError

TASK = "messages of another cluster"
"""What logs and metrics call it."""
ELSEWHERE = 0.2
"""Seconds between two looks whether another relay is done with it."""
TOLD = 500_000
"""Messages that are looked at between two reports of how far a search is: some seconds."""
PAUSE = 10
"""Rest after a walk that left messages behind, in durations of that walk."""


class Renumbered(NamedTuple):
    """What a step did."""

    messages: int
    """How many got ids of this cluster."""
    more: bool
    """More can be done now."""
    looked: int | None
    """How many were looked at; None where another session is at it."""
    stays: str | None = None
    """At the end of a walk that had to leave messages behind: which was the first, and why."""


class ForeignStore(Protocol):
    """The statement that renumbers; it may raise StoreError."""

    async def renumber(self) -> Renumbered:
        """Look at some messages and give those of another cluster ids of this one."""


class Renumbering:
    """Renumbers step by step and tells of it.

    Args:
        store: where the messages are.
        emit: takes what was done.
        renumbered: called after a step that changed something, since claims may have passed what has moved.

    """

    def __init__(self, store: ForeignStore, emit: events.Sink, renumbered: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._emit = emit
        self._renumbered = renumbered
        self._waits = False
        self._looked = 0
        self._stays = False
        self._rests_until = 0.0

    async def run(self) -> bool:
        """Renumber all that nobody else is at; False, as a task that has left nothing to do."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if began < self._rests_until:
            return False
        while await self.step() and not self._waits:
            pass
        if self._stays:
            self._rests_until = (now := clock()) + PAUSE * (now - began)
        return False

    async def step(self) -> bool:
        """Renumber some; return whether more are left."""
        done = await self._store.renumber()
        self._waits = done.more and done.looked is None
        before, self._looked = self._looked, self._looked + (done.looked or 0)
        if self._looked // TOLD > before // TOLD:
            self._emit(events.ForeignIdsSought(self._looked))
        if not done.more:
            self._looked = 0
        if done.messages:
            self._emit(events.MessagesRenumbered(done.messages, done.more))
            self._renumbered()
        self._stays = done.stays is not None
        if done.stays:
            self._emit(events.MaintenanceFailed(TASK, done.stays))
        return done.more

    async def finish(self, stop: asyncio.Event) -> bool:
        """Renumber all, but for what has to stay; False if `stop` came first.

        Raises:
            StoreError: the database did not answer, or refused.
        """
        while not stop.is_set():
            try:
                if not await self.step():
                    return True
            except StoreError as error:
                if not (error.in_passing or error.refused):
                    raise
                # A table that an application keeps locked, or a deferred trigger that refuses, must not keep the relay from its work.
                self._emit(events.MaintenanceFailed(TASK, str(error)))
                return True
            if self._waits:
                await unless(stop, asyncio.sleep(ELSEWHERE))
        return False
