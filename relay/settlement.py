"""Writes outcomes until they are written. A failed settle is tried again as a settle; it never causes a second publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from relay import events
from relay.errors import StoreError
from relay.message import Archive, Batch, GiveBack, Outcome, Portion, Retry
from relay.ports import Row, SettleStore, Written
from relay.waiting import pause, unless

Item = TypeVar("Item")

LONGEST_PAUSE = 5.0
"""Seconds between two tries while the database is away."""
GUILTY_PAUSE = 30.0
"""Seconds between two tries of a row that the archive refuses by itself."""


class Write(Protocol):
    """One of the two statements."""

    async def __call__(self, batch: Batch, rows: Sequence[Row], *, again: bool) -> list[str]:
        """Write rows; return the ids that were not ours any more."""


class Pass(NamedTuple):
    """What one try at everything came to."""

    lost: list[str]
    refused: list[Row]
    """Rows that spoil the statement alone: they wait, their neighbours do not."""


class Settlement:
    """The settler that the engine talks to."""

    def __init__(self, *, store: SettleStore, emit: events.Sink) -> None:
        self._store = store
        self._emit = emit
        self._leaving = asyncio.Event()

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[Written]:
        """See `relay.ports.Settler`."""
        tries = 0
        while portion.claims:
            lost, refused = await self._pass(batch, _rows(batch, portion, outcomes))
            written, portion, outcomes = _split(portion, outcomes, refused)
            if written.portion.claims:
                yield written._replace(lost=lost)
            if refused and self._leaving.is_set():
                return
            if refused:
                tries += 1
                await unless(self._leaving, asyncio.sleep(pause(tries, longest=GUILTY_PAUSE)))

    def leave(self) -> None:
        """See `relay.ports.Settler`."""
        self._leaving.set()

    async def _pass(self, batch: Batch, rows: Sequence[Row]) -> Pass:
        archived = [row for row in rows if isinstance(row.outcome, Archive)]
        released = [row for row in rows if isinstance(row.outcome, Retry | GiveBack)] if len(archived) < len(rows) else []
        lost, refused = await self._persist(self._store.archive, batch, archived) if archived else Pass([], [])
        if released:
            more = await self._persist(self._store.release, batch, released)
            lost, refused = lost + more.lost, refused + more.refused
        return Pass(lost, refused)

    async def _persist(self, write: Write, batch: Batch, rows: Sequence[Row]) -> Pass:
        """Try until it is written; halve what a row's own values spoil until that row stands alone."""
        attempt = 0
        while True:
            try:
                return Pass(await write(batch, rows, again=attempt > 0), [])
            except StoreError as error:
                attempt += 1
                if error.row_is_guilty and len(rows) > 1:
                    middle = len(rows) // 2
                    left, right = [await self._persist(write, batch, half) for half in (rows[:middle], rows[middle:])]
                    return Pass(left.lost + right.lost, left.refused + right.refused)
                self._emit(events.SettleFailed(len(rows), str(error), attempt))
                if error.row_is_guilty:
                    return Pass([], list(rows))
            await asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE))


def _rows(batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> list[Row]:
    zero = batch.claimed_tick
    return [
        Row(claim, outcome, int((published - zero) * 1e6) if published else None, int((confirmed - zero) * 1e6) if confirmed else None)
        for claim, outcome, published, confirmed in zip(portion.claims, outcomes, portion.published, portion.confirmed, strict=True)
    ]


def _split(portion: Portion, outcomes: Sequence[Outcome], refused: Sequence[Row]) -> tuple[Written, Portion, Sequence[Outcome]]:
    """What was written, and what is left to write."""
    if not refused:
        return Written(portion, outcomes, []), Portion([], [], [], []), []
    apart = {row.claim.position for row in refused}
    through = [index for index, claim in enumerate(portion.claims) if claim.position not in apart]
    left = [index for index, claim in enumerate(portion.claims) if claim.position in apart]
    return Written(_picked(portion, through), _pick(outcomes, through), []), _picked(portion, left), _pick(outcomes, left)


def _picked(portion: Portion, indexes: Sequence[int]) -> Portion:
    claims, results, published, confirmed = portion
    return Portion(_pick(claims, indexes), _pick(results, indexes), _pick(published, indexes), _pick(confirmed, indexes))


def _pick(items: Sequence[Item], indexes: Sequence[int]) -> list[Item]:
    return [items[index] for index in indexes]
