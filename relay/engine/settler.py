"""Writes outcomes, and retries until they are written. A failed settle never causes a second publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from relay import events
from relay.aio import pause, unless
from relay.errors import StoreError
from relay.message import Archive, Batch, GiveBack, Outcome, Portion, Retry
from relay.ports import RowLeft, SettleResult, SettleRow, SettleStore

Item = TypeVar("Item")

LONGEST_PAUSE = 5.0
"""Most seconds between two attempts while the database is unavailable."""
REFUSED_PAUSE = 30.0
"""Most seconds between two attempts for a row that the archive refuses."""
BUSY_PAUSE = 1.0
"""Most seconds between two attempts for a row that another session has locked."""
BUSY = (
    "Another session holds these rows of queue_message, or a trigger of the table keeps them; they are tried again, and their "
    "neighbours are settled. If this continues, end the long transaction that pg_stat_activity shows, or correct the trigger."
)


class Write(Protocol):
    """The statement for archive or for release."""

    async def __call__(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Write rows; return those that were not written."""


class SettlePass(NamedTuple):
    """The result of one attempt to write all rows."""

    lost: list[str]
    refused: list[SettleRow]
    """Rows that each make a statement fail on their own; they are tried again later."""
    busy: list[SettleRow]
    """Rows that other sessions have locked; these rows are tried again later, too."""

    def plus(self, other: SettlePass) -> SettlePass:
        """The results of both attempts."""
        return SettlePass(self.lost + other.lost, self.refused + other.refused, self.busy + other.busy)


NO_ROWS = SettlePass([], [], [])


class RetryingSettler:
    """The engine's settler; see `relay.ports.Settler`."""

    def __init__(self, *, store: SettleStore, emit: events.Sink) -> None:
        self._store = store
        self._emit = emit
        self._leaving = asyncio.Event()

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """See `relay.ports.Settler`."""
        tries = 0
        while portion.claims:
            lost, refused, busy = await self._try_all(batch, _rows(batch, portion, outcomes))
            written = _settled_part(portion, outcomes, [*refused, *busy])
            if written.portion.claims:
                yield written._replace(lost=lost)
            left = busy if self._leaving.is_set() else [*refused, *busy]
            portion, outcomes = _unsettled_part(portion, outcomes, left)
            if left:
                tries += 1
                await self._rest(pause(tries, longest=BUSY_PAUSE if busy else REFUSED_PAUSE))

    def leave(self) -> None:
        """See `relay.ports.Settler`."""
        self._leaving.set()

    async def _rest(self, seconds: float) -> None:
        """Wait, but end the wait when a shutdown begins."""
        if self._leaving.is_set():
            await asyncio.sleep(seconds)
        else:
            await unless(self._leaving, asyncio.sleep(seconds))

    async def _try_all(self, batch: Batch, rows: Sequence[SettleRow]) -> SettlePass:
        archived = [row for row in rows if isinstance(row.outcome, Archive)]
        released = [row for row in rows if isinstance(row.outcome, Retry | GiveBack)] if len(archived) < len(rows) else []
        done = await self._write(self._store.archive, batch, archived) if archived else NO_ROWS
        return done.plus(await self._write(self._store.release, batch, released)) if released else done

    async def _write(self, write: Write, batch: Batch, rows: Sequence[SettleRow]) -> SettlePass:
        """Retry until the rows are written. If the database refuses a statement, halve its rows until the refused row is alone."""
        attempt = 0
        while True:
            try:
                return self._written(rows, await write(batch, rows, again=attempt > 0))
            except StoreError as error:
                attempt += 1
                if error.refused and len(rows) > 1:
                    middle = len(rows) // 2
                    left, right = [await self._write(write, batch, half) for half in (rows[:middle], rows[middle:])]
                    return left.plus(right)
                self._emit(events.SettleFailed(len(rows), str(error), attempt))
                if error.refused:
                    return SettlePass([], list(rows), [])
            await asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE))

    def _written(self, rows: Sequence[SettleRow], left: Sequence[RowLeft]) -> SettlePass:
        busy = {one.id for one in left if one.busy}
        if busy:
            self._emit(events.SettleFailed(len(busy), BUSY, 1))
        return SettlePass([one.id for one in left if not one.busy], [], [row for row in rows if row.claim.id in busy] if busy else [])


def _rows(batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> list[SettleRow]:
    zero = batch.claimed_tick
    return [
        SettleRow(
            claim, outcome, int((published - zero) * 1e6) if published else None, int((confirmed - zero) * 1e6) if confirmed else None
        )
        for claim, outcome, published, confirmed in zip(portion.claims, outcomes, portion.published, portion.confirmed, strict=True)
    ]


def _settled_part(portion: Portion, outcomes: Sequence[Outcome], left: Sequence[SettleRow]) -> SettleResult:
    """The part of a portion that was written."""
    if not left:
        return SettleResult(portion, outcomes, [])
    apart = {row.claim.position for row in left}
    indexes = [index for index, claim in enumerate(portion.claims) if claim.position not in apart]
    return SettleResult(_portion_of(portion, indexes), _pick(outcomes, indexes), [])


def _unsettled_part(portion: Portion, outcomes: Sequence[Outcome], left: Sequence[SettleRow]) -> tuple[Portion, Sequence[Outcome]]:
    """The part of a portion that is not written yet."""
    apart = {row.claim.position for row in left}
    indexes = [index for index, claim in enumerate(portion.claims) if claim.position in apart] if left else []
    return _portion_of(portion, indexes), _pick(outcomes, indexes)


def _portion_of(portion: Portion, indexes: Sequence[int]) -> Portion:
    claims, results, published, confirmed = portion
    return Portion(_pick(claims, indexes), _pick(results, indexes), _pick(published, indexes), _pick(confirmed, indexes))


def _pick(items: Sequence[Item], indexes: Sequence[int]) -> list[Item]:
    return [items[index] for index in indexes]
