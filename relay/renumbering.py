"""Messages of another cluster, as from a restored dump, get transaction ids of this one: all at start, some each minute afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay import events
from relay.errors import StoreError
from relay.waiting import unless

ELSEWHERE = 0.2
"""Seconds between two looks whether another relay is done with it."""

TOLD = 500_000
"""Messages that are looked at between two reports of how far a search is: some seconds."""


class ForeignStore(Protocol):
    """The statement that renumbers; it may raise StoreError."""

    async def renumber(self) -> tuple[int, bool, int | None]:
        """Look at some messages and give those of another cluster ids of this one.

        Return how many got one, whether more is to do, and how many were looked at, None where another session is at it.
        """


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

    async def run(self) -> bool:
        """Renumber all that nobody else is at; False, as a chore that has left nothing over."""
        while await self.step() and not self._waits:
            pass
        return False

    async def step(self) -> bool:
        """Renumber some; return whether more are left."""
        renumbered, more, looked = await self._store.renumber()
        self._waits = more and looked is None
        before, self._looked = self._looked, self._looked + (looked or 0)
        if self._looked // TOLD > before // TOLD:
            self._emit(events.ForeignIdsSought(self._looked))
        if not more:
            self._looked = 0
        if renumbered:
            self._emit(events.MessagesRenumbered(renumbered, more))
            self._renumbered()
        return more

    async def finish(self, stop: asyncio.Event) -> bool:
        """Renumber all, but for what stands behind a message that another session holds; False if `stop` came first.

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
                # One message that an application keeps locked, or refuses, must not keep every other from being sent.
                self._emit(events.MaintenanceFailed("messages of another cluster", str(error)))
                return True
            if self._waits:
                await unless(stop, asyncio.sleep(ELSEWHERE))
        return False
