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
"""Without a confirm, after which an exchange counts as silent."""
RENEWAL_SHARE = 0.5
"""Share of the relay's own deadline that must be left, else the locks are renewed."""


class LockStore(Protocol):
    """The statement that keeps locks."""

    async def renew(self, batch: Batch, positions: list[tuple[int, int]]) -> int:
        """Move locks ahead; return how many are still ours. May raise StoreError."""


class LockRenewer:
    """Renews the locks of messages in flight before they expire, and notes exchanges that do not confirm.

    Args:
        store: where locks are renewed.
        window: the messages in flight.
        lock_seconds: how long a lock lasts, as the policy says now.
        silent: seconds without a confirm by exchange.
        emit: takes what cannot be renewed.
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
        """Look often enough for every lock, for ever; `stuck_changed` is called when other exchanges than before are stuck."""
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
