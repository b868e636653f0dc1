"""The scan that finds every claimable message, whatever happened to it: round after round, in pages in claim order (from left to right).

Of the relay's memory, the scan uses only how far the streams have scanned (their heads): above the heads, the streams find fresh messages
without a key. The scan passes claimable messages to the intake, and frees expired locks. After a page that does not end the round, it
rests until pages take only `SHARE` of the time, but at most `ROUND` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from relay import events
from relay.aio import unless
from relay.claims.intake import Intake
from relay.errors import StoreError
from relay.message import START, Position
from relay.ports import Page, Sought

ROUND = 2.0
"""Seconds between two rounds: well below five, because a dead relay's messages must be sent within five seconds after the lock time."""
SHARE = 0.25
"""Share of the time that pages may take in the database."""
WHOLE = 10.0
"""Seconds after which a round begins at the very left again. Until then, rounds begin at the first message that the
last round from the very left met. So if an old snapshot keeps settled rows at the left, most rounds need not scan these rows."""


class ScrubStore(Protocol):
    """The statements of the scrub; each may raise StoreError."""

    async def scan_left(self, *, after: Position, head: Position, heads: Mapping[str, Position], sought: Sought) -> Page:
        """One page in claim order; the statement locks nothing. Fresh messages above their stream's head are left to the streams."""

    async def free_expired(self, positions: Sequence[Position]) -> tuple[int, int]:
        """Free the messages at these positions whose locks have expired; return how many were released, and how many archived."""


class Scrub:
    """Scans the queue round after round.

    Args:
        store: runs the statements of the scan.
        intake: gets the messages that the scan finds.
        emit: sink of events.
        nudge: called when something can be claimed.
        holds: says whether this relay has the message at a position in flight. The message's lock may expire while another session has
            its row locked; then the repeated settle finishes the message, not a second publish.

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
        self._first = START
        """There is no message up to this position, except from transactions that commit late."""
        self._whole_at = -WHOLE
        self._from_left: float | None = None
        """When the current round began at the very left; None if it began elsewhere."""
        self._walked: float | None = None
        """When the last complete round from the very left began."""
        self._took = 0.0
        """Seconds that the last page took."""
        self._hinted = asyncio.Event()

    @property
    def walked_ago(self) -> float | None:
        """The seconds within which every message was checked at least once; None until the first complete round has ended."""
        return None if self._walked is None else time.monotonic() - self._walked

    async def run(self) -> None:
        """Scan for ever."""
        while True:
            more = await self._try()
            rest = min(self._took * (1 - SHARE) / SHARE, ROUND)
            await unless(self._hinted, asyncio.sleep(rest if more else ROUND))

    def hint(self) -> None:
        """Continue at once, because messages were released."""
        self._hinted.set()

    def begin_again(self) -> None:
        """Continue at once, and let the next round begin at the very left, because messages have moved there."""
        self._whole_at = -WHOLE
        self._from_left = None
        self._hinted.set()

    async def _try(self) -> bool:
        self._hinted.clear()
        try:
            return await self.page()
        except StoreError as error:
            self._emit(events.MaintenanceFailed("scan of the queue", str(error)))
            return False

    async def page(self) -> bool:
        """Scan one page; return whether the round continues."""
        streams, after = self._intake.streams, self._after
        if after == START:
            self._from_left = time.monotonic()
        page = await self._store.scan_left(after=after, head=streams.main.head, heads=streams.heads, sought=self._intake.sought)
        self._took = page.seconds
        if after == START:
            self._first = Position(page.first.xid, page.first.seq - 1) if page.first else streams.main.head
        if page.reached is None and self._from_left is not None:
            self._walked, self._from_left = self._from_left, None
        self._after = page.reached or self._next_round()
        self._intake.found(page.findings)
        self._tell_stranded()
        await self._free([one.position for one in page.findings if one.kind == "expired" and not self._holds(one.position)])
        if page.findings:
            self._nudge()
        return page.reached is not None

    def _next_round(self) -> Position:
        """The position at which the next round begins."""
        if time.monotonic() < self._whole_at + WHOLE:
            return self._first
        self._whole_at = time.monotonic()
        return START

    async def _free(self, positions: Sequence[Position]) -> None:
        released, archived = await self._store.free_expired(positions) if positions else (0, 0)
        if released or archived:
            self._emit(events.LocksSwept(released, archived))
            self._intake.hint_waiting()

    def _tell_stranded(self) -> None:
        stranded, self._intake.stranded = self._intake.stranded, 0
        if stranded:
            self._emit(events.StrandedFound(stranded))
