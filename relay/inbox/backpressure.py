"""How full the inbox is: counted each second, and at once where what was written since may have filled it."""

from __future__ import annotations

import asyncio

from relay import events
from relay.errors import StoreError
from relay.events.inbox import InboxFull, InboxOpen
from relay.inbox.ports import DeliverySource, InboxStore

LOOK = 1.0
"""Seconds between two looks."""
ROOM_AGAIN = 0.8
"""Share of the limit below which messages come in again."""


class InboxBackpressure:
    """Pauses the source while too much waits.

    Args:
        source: is paused and resumed.
        inbox: is counted.
        limit: messages in the inbox above which nothing is taken from the queues; what is here already is still written.
        emit: takes events.

    """

    def __init__(self, *, source: DeliverySource, inbox: InboxStore, limit: int, emit: events.Sink) -> None:
        self._source = source
        self._inbox = inbox
        self._limit = limit
        self._emit = emit
        self._waiting = 0
        self._ended = False
        self.full = False
        self.trouble: str | None = None
        """Why the last look found out nothing."""

    async def watch(self) -> None:
        """Look each second, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def wrote(self, messages: int) -> None:
        """So many messages more are in the inbox."""
        self._waiting += messages
        if not self.full and self._waiting >= self._limit:
            await self.look()

    def end(self) -> None:
        """Pause for good."""
        self._ended = True
        self._source.pause()

    async def look(self) -> None:
        """Count, and pause or resume."""
        try:
            self._waiting = await self._inbox.waiting(self._limit)
        except StoreError as error:
            self.trouble = str(error)
            self._emit(events.MaintenanceFailed("room in the inbox", self.trouble))
            return
        self.trouble = None
        if not self.full and self._waiting >= self._limit:
            self.full = True
            self._source.pause()
            self._emit(InboxFull(self._waiting, self._limit))
        elif self.full and self._waiting < self._limit * ROOM_AGAIN:
            self.full = False
            self._emit(InboxOpen(self._waiting))
            if not self._ended:
                self._source.resume()
