"""Renews the locks of messages in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from relay import events
from relay.engine.window import Window
from relay.errors import StoreError
from relay.message import Batch

SILENT_SECONDS = 1.0
"""Seconds without a confirm after which an exchange counts as silent."""
RENEWAL_SHARE = 0.5
"""Locks are renewed when less than this share of the lock time is left."""


class LockStore(Protocol):
    """The statement that renews locks."""

    async def renew(self, batch: Batch, positions: list[tuple[int, int]]) -> int:
        """Renew the locks; return how many this relay still holds. May raise StoreError."""


class LockRenewer:
    """Renews the locks of messages in flight before they expire, and notes exchanges that do not confirm.

    Args:
        store: renews locks.
        window: the messages in flight.
        lock_seconds: returns how long a lock lasts by the current policy.
        silent: returns the seconds without a confirm, for each exchange.
        emit: sink of failed renewals.
    """

    def __init__(
        self,
        *,
        store: LockStore,
        window: Window,
        lock_seconds: Callable[[], float],
        silent: Callable[[], Mapping[str, float]],
        emit: events.Sink,
    ) -> None:
        self.window = window
        self._store = store
        self._lock_seconds = lock_seconds
        self._silent = silent
        self._emit = emit

    async def run(self, stuck_changed: Callable[[], None]) -> None:
        """Renew locks in time, for ever; call `stuck_changed` whenever the set of stuck exchanges changes."""
        while True:
            await asyncio.sleep(min(1.0, self._lock_seconds() / 10))
            if self.window.note_silence([exchange for exchange, seconds in self._silent().items() if seconds > SILENT_SECONDS]):
                stuck_changed()
            await self._renew()

    async def _renew(self) -> None:
        for batch, positions in self.window.due_for_renewal(time.monotonic(), self._lock_seconds() * RENEWAL_SHARE):
            try:
                await self._store.renew(batch, positions)
            except StoreError as error:
                self._emit(events.MaintenanceFailed("lock renewal", str(error)))
