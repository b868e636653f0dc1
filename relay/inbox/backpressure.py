"""Backpressure: counts the messages in the inbox each second, and at once when new messages may have filled the inbox."""

from __future__ import annotations

import asyncio

from relay import events
from relay.errors import StoreError
from relay.events.inbox import InboxFull, InboxOpen
from relay.inbox.ports import DeliverySource, InboxStore

COUNT_SECONDS = 1.0
"""Seconds between two counts."""
RESUME_SHARE = 0.8
"""The source resumes when the inbox has fewer messages than this share of the limit."""


class InboxBackpressure:
    """Pauses the source while too many messages wait.

    Args:
        source: the source to pause and resume.
        inbox: the inbox whose messages are counted.
        limit: with this many messages in the inbox, the source is paused; deliveries received before are still written.
        emit: sink of events.

    """

    def __init__(self, *, source: DeliverySource, inbox: InboxStore, limit: int, emit: events.Sink) -> None:
        self._source = source
        self._inbox = inbox
        self._limit = limit
        self._emit = emit
        self._waiting = 0
        self._stopped = False
        self.full = False
        self.trouble: str | None = None
        """Why the last count failed."""

    async def watch(self) -> None:
        """Count each second, until cancelled."""
        while True:
            await self.count()
            await asyncio.sleep(COUNT_SECONDS)

    async def wrote(self, messages: int) -> None:
        """Add new messages to the last count."""
        self._waiting += messages
        if not self.full and self._waiting >= self._limit:
            await self.count()

    def end(self) -> None:
        """Pause and never resume."""
        self._stopped = True
        self._source.pause()

    async def count(self) -> None:
        """Count the messages, and pause or resume the source."""
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
        elif self.full and self._waiting < self._limit * RESUME_SHARE:
            self.full = False
            self._emit(InboxOpen(self._waiting))
            if not self._stopped:
                self._source.resume()
