"""The scan that finds every claimable message, whatever became of it: in pages, from the left up to the head, round after round.

It trusts nothing that the relay remembers but the head, above which the streams find everything. What it sees and may be claimed it
hands to the intake; locks that are over it has freed. A round takes at most `SHARE` of the time, and begins at least every `ROUND` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from relay import events
from relay.claims.intake import Intake
from relay.errors import StoreError
from relay.message import START, Position
from relay.ports import Page
from relay.waiting import unless

ROUND = 2.0
"""Seconds between two rounds: with the lock time well below the five seconds that are promised after a relay's death."""
SHARE = 0.25
"""Share of the time that pages may take in the database."""
FULL = 0.1
"""Seconds to wait while there is no room for what a page may find."""


class ScrubStore(Protocol):
    """The statements of the scrub; each may raise StoreError."""

    async def scan_left(
        self, *, after: Position, to: Position, held: Sequence[str], heads: Mapping[str, Position], lanes: Collection[int]
    ) -> Page:
        """One page in claim order; locks nothing."""

    async def free_expired(self, positions: Sequence[Position]) -> tuple[int, int]:
        """Free those of these messages whose lock is over; return how many were released, and how many archived."""


class Scrub:
    """Runs round after round.

    Args:
        store: where messages are.
        intake: takes what is found.
        emit: takes what there is to tell.
        nudge: called when something can be claimed.
        holds: says whether this relay has the message at a position in hand. Its lock may run out while another session holds the row;
            the settle that is tried again ends it, and not a second publish.

    """

    def __init__(
        self, *, store: ScrubStore, intake: Intake, emit: events.Sink, nudge: Callable[[], None], holds: Callable[[Position], bool]
    ) -> None:
        self._store = store
        self._intake = intake
        self._holds = holds
        self._emit = emit
        self._nudge = nudge
        self._after = START
        self._hints = 0
        self._hinted = asyncio.Event()

    async def run(self) -> None:
        """Scan for ever."""
        while True:
            began = time.monotonic()
            more = await self._try()
            rest = (time.monotonic() - began) * (1 - SHARE) / SHARE
            await unless(self._hinted, asyncio.sleep(max(rest, FULL if self._intake.full else 0.0) if more else max(rest, ROUND)))

    def hint(self) -> None:
        """Begin a round at once: something was let go."""
        self._after = START
        self._hints += 1
        self._hinted.set()

    async def _try(self) -> bool:
        self._hinted.clear()
        try:
            return self._intake.full or await self.page()
        except StoreError as error:
            self._emit(events.MaintenanceFailed("scan of the queue", str(error)))
            return False

    async def page(self) -> bool:
        """Scan one page; return whether the round goes on."""
        streams, hints = self._intake.streams, self._hints
        page = await self._store.scan_left(
            after=self._after, to=streams.main.head, held=streams.held, heads=streams.heads, lanes=self._intake.lanes.owned
        )  # fmt: skip
        if hints == self._hints:
            self._after = page.reached if page.reached and page.cut else START
        await self._free([one.position for one in page.findings if one.kind == "expired" and not self._holds(one.position)])
        self._intake.found(page.findings)
        self._tell_stranded()
        if page.findings:
            self._nudge()
        return page.cut

    async def _free(self, positions: Sequence[Position]) -> None:
        released, archived = await self._store.free_expired(positions) if positions else (0, 0)
        if released or archived:
            self._emit(events.LocksSwept(released, archived))
            self._intake.hint_waiting()

    def _tell_stranded(self) -> None:
        stranded, self._intake.backlog.stranded = self._intake.backlog.stranded, 0
        if stranded:
            self._emit(events.StrandedFound(stranded))
