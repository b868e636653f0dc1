"""Writes outcomes until they are written. A failed settle is tried again as a settle; it never causes a second publish."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

from relay import events
from relay.errors import StoreError
from relay.message import Archive, Batch, GiveBack, Outcome, Portion, Retry, Settled
from relay.ports import Row, SettleStore

LONGEST_PAUSE = 5.0
"""Seconds between two tries while the database is away."""
GUILTY_PAUSE = 30.0
"""Seconds between two tries of a row that the archive refuses by itself."""


class Write(Protocol):
    """One of the two statements."""

    async def __call__(self, batch: Batch, rows: Sequence[Row], *, again: bool) -> list[str]:
        """Write rows; return the ids that were not ours any more."""


class Settlement:
    """The settler that the engine talks to."""

    def __init__(self, *, store: SettleStore, emit: events.Sink) -> None:
        self._store = store
        self._emit = emit

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> Settled:
        """See `relay.ports.Settler`."""
        rows = _rows(batch, portion, outcomes)
        archived = [row for row in rows if isinstance(row.outcome, Archive)]
        released = [row for row in rows if isinstance(row.outcome, Retry | GiveBack)] if len(archived) < len(rows) else []
        lost = await self._persist(self._store.archive, batch, archived) if archived else []
        lost += await self._persist(self._store.release, batch, released) if released else []
        return Settled(len(archived), len(released), lost)

    async def _persist(self, write: Write, batch: Batch, rows: Sequence[Row]) -> list[str]:
        """Try until it is written; halve what a row's own values spoil until that row stands alone."""
        attempt = 0
        while True:
            try:
                return await write(batch, rows, again=attempt > 0)
            except StoreError as error:
                if error.row_is_guilty and len(rows) > 1:
                    middle = len(rows) // 2
                    return await self._persist(write, batch, rows[:middle]) + await self._persist(write, batch, rows[middle:])
                attempt += 1
                self._emit(events.SettleFailed(len(rows), str(error), attempt))
                longest = GUILTY_PAUSE if error.row_is_guilty else LONGEST_PAUSE
            await asyncio.sleep(min(0.05 * 2 ** min(attempt, 12), longest) * (0.5 + random.random() / 2))  # noqa: S311 - jitter


def _rows(batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> list[Row]:
    zero = batch.claimed_tick
    return [
        Row(claim, outcome, int((published - zero) * 1e6) if published else None, int((confirmed - zero) * 1e6) if confirmed else None)
        for claim, outcome, published, confirmed in zip(portion.claims, outcomes, portion.published, portion.confirmed, strict=True)
    ]
