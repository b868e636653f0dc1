"""Sources of batches: fresh messages, ordering keys, and scan results. Each source is polled only when a statement for it is worthwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from relay.claims.backlog import Backlog
from relay.claims.cursor import Cursor
from relay.claims.flood_control import FloodControl
from relay.claims.lanes import Lanes, LaneStore
from relay.claims.poll_backoff import FIRST_GAP, PollBackoff
from relay.claims.rate_limits import RateLimits
from relay.claims.streams import Streams
from relay.claims.suspects import Suspects
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.message import Batch, Outcome, Portion, Position
from relay.ports import SUSPECT, At, DuePlace, Page, QueueLook, ScanFinding, Sought

PAST = DuePlace("-infinity")


class IntakeStore(LaneStore, Protocol):
    """The statements that the sources need."""

    async def look(self, *, fresh: Cursor, after: str, paused: Sequence[str], lanes: Collection[int], ordered: Cursor) -> QueueLook:
        """Find out in one statement which sources may have something due; lock nothing.

        Raises:
            StoreError: the database did not answer.
        """

    async def scan_due(self, *, after: DuePlace, sought: Sought) -> Page:
        """One page of the messages whose wait ended after a place; the statement locks nothing.

        Raises:
            StoreError: the database did not answer.
        """


class Intake:
    """Claims from each source in turn, so that a full source cannot starve another source."""

    def __init__(
        self,
        *,
        store: IntakeStore,
        poll_interval: float,
        share: FloodControl | None = None,
        strangers: UnconfirmedExchanges | None = None,
        put_back: asyncio.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._clock = clock
        self.limits = RateLimits(clock)
        self.backlog = Backlog(self.limits)
        self.suspects = Suspects(self.limits, clock)
        self.stranded = 0
        """How many stranded messages were claimed since this counter was last read."""
        self._strangers = strangers
        self._put_back = put_back or asyncio.Event()
        """Set when a claim has returned messages to the queue that are due at once."""
        self.streams = Streams(store, share, self.limits, strangers)
        self.lanes = Lanes(store, limits=self.limits, suspects=self.suspects.backlog)
        self._after = PAST
        """Messages whose wait ended before this time have been scanned."""
        self._seen_due: set[Position] = set()
        """Positions that the last scan of ended waits found."""
        self._fresh = PollBackoff(self._claim_fresh)
        self._ordered = PollBackoff(self._claim_ordered)
        self._due = PollBackoff(self._scan_due)
        self._limited = PollBackoff(self._claim_limited)
        self._waiting = PollBackoff(self._claim_waiting)
        self._suspect = PollBackoff(self._claim_suspect)
        self._turns = [self._fresh, self._ordered, self._due, self._waiting, self._suspect, self._limited]
        self._polled = [self._fresh, self._ordered, self._due]
        """Sources that must ask the database whether they have messages; the other sources keep their messages in memory."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch, or None when no source has anything due; see `relay.ports.Intake`."""
        if self._rests():
            await self._look()
        for source in list(self._turns):
            if source.look_at > self._clock():
                continue
            batch, unfinished = await self._ask(source, room, room_bytes)
            source.came_up(self._clock(), self._poll_interval, again=unfinished or batch is not None)
            self._mind(source, batch)
            if batch:
                self.streams.took(batch)
                self.limits.took(batch)
                self._turns.append(self._turns.pop(self._turns.index(source)))
                return batch
        return None

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Learn from outcomes: a suspect is settled, a key is free again, or an exchange has become known."""
        if self._strangers:
            self._strangers.learn(portion)
        if self.suspects.settled(portion.claims):
            self._suspect.hint()
        if self.lanes.settled(portion, outcomes):
            self._ordered.hint()
        if self.streams.starved:
            self._fresh.hint()
        if self.backlog.starved:
            self._waiting.hint()

    def found(self, findings: Iterable[ScanFinding]) -> None:
        """Add claimable messages that a scan has found; the claim checks each message again."""
        for finding in findings:
            if finding.kind == "expired":
                continue
            if finding.kind == "key":
                self.lanes.found(finding)
                self._ordered.hint()
            elif finding.kind == "suspect":
                self.suspects.backlog.put(finding)
                self._suspect.hint()
            elif finding.kind == "waiting" or not self.streams.expects(finding.exchange, finding.position):
                self.backlog.put(finding, known=self._strangers is not None and finding.exchange not in self._strangers)
                self._waiting.hint()

    @property
    def sought(self) -> Sought:
        """What scans must look for: no messages of paused exchanges, and no messages for which there is no room here."""
        return Sought(self.streams.paused, self.backlog.crowded, [] if self.lanes.keys.many_found else self.lanes.owned)

    def hint(self) -> None:
        """Messages were inserted: claim fresh messages at once."""
        self.streams.hint()
        for source in (self._fresh, self._ordered, self._limited):
            source.hint()

    def hint_waiting(self) -> None:
        """Messages were returned to the queue: scan at once for ended waits."""
        for source in (self._due, self._waiting, self._suspect):
            source.hint()

    def pause(self, exchanges: Collection[str]) -> bool:
        """Pause exactly these exchanges; return whether that resumed another exchange. Its messages are then claimed at once."""
        for backlog in (self.backlog, self.suspects.backlog, self.lanes.backlog):
            backlog.forget(exchanges)
        resumed = self.streams.pause(exchanges)
        if resumed:
            self.hint()
            self.hint_waiting()
        return resumed

    def limit(self, figures: Mapping[str, float], relays: int) -> None:
        """Apply exactly these limits (messages a second by exchange); this relay's share is 1/`relays`."""
        if self.limits.set(figures, relays):
            self.streams.limit(figures)
            self.hint()
            self.hint_waiting()

    @property
    def behind(self) -> list[str]:
        """Exchanges with messages that wait for a limit, sorted."""
        return sorted({*self.streams.behind, *self.backlog.throttled, *self.lanes.backlog.throttled})

    async def keep_lanes(self) -> bool:
        """Yield or acquire lanes, and scan new lanes at once. Return whether the lanes have changed."""
        changed = await self.lanes.keep()
        if changed:
            self.hint()
        return changed

    async def reject_unprintable(self) -> None:
        """See `relay.ports.Intake`."""
        await self._store.reject_unprintable()

    def until_next_look(self) -> float:
        """Seconds until a source is due, at least 0."""
        return max(0.0, min(source.look_at for source in self._turns) - self._clock())

    def reset(self) -> None:
        """The database connection is new: cursors and lanes begin again."""
        self.streams.reset()
        self.lanes.reset()
        self.backlog.clear()
        self.suspects.clear()
        self._after = PAST
        self.hint()
        self.hint_waiting()

    async def _ask(self, source: PollBackoff, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        """Claim. If the claim has returned messages to the queue, scan for them at once, even if the claim failed."""
        try:
            return await source.claim(room, room_bytes)
        finally:
            if self._put_back.is_set():
                self._put_back.clear()
                self.hint_waiting()

    async def _look(self) -> None:
        """Ask in one inexpensive statement which sources have messages, so that only these sources are polled."""
        streams, lanes = self.streams, self.lanes
        seen = await self._store.look(
            fresh=streams.main, after=self._after.time, paused=streams.paused, lanes=lanes.owned, ordered=lanes.cursor
        )  # fmt: skip
        # This statement does not see the keys that wait for limits: they are below the head of the lanes.
        ordered = seen.ordered or self.limits.until(self.lanes.backlog.throttled) == 0.0
        for source, found in zip(self._polled, (seen.fresh or bool(streams.heads), ordered, seen.waiting), strict=True):
            source.look_at = 0.0 if found else self._clock() + self._poll_interval
        self._mind_limits()

    def _rests(self) -> bool:
        """Whether one statement for all sources is due in place of a poll of each, because all were empty often enough."""
        rest = all(source.rests(self._poll_interval) for source in self._polled)
        return rest and min(source.look_at for source in self._polled) <= self._clock()

    def _mind(self, source: PollBackoff, batch: Batch | None) -> None:
        """Poll fresh messages soon if an empty claim left out a flood: other exchanges must not wait longer because of the flood."""
        if source is self._fresh and self.streams.starved and not batch:
            source.look_at, source.gap = min(source.look_at, self._clock() + FIRST_GAP), FIRST_GAP
        self._mind_limits()

    def _mind_limits(self) -> None:
        """Poll messages that wait for a limit as soon as the limit admits them."""
        if not self.limits.names:
            return
        waits = ((self._waiting, self.backlog), (self._ordered, self.lanes.backlog))
        limited = [(source, self.limits.until(backlog.throttled)) for source, backlog in waits]
        for source, seconds in ((self._limited, self.streams.until_limited()), *limited):
            if seconds is not None:
                source.look_at = min(source.look_at, self._clock() + max(seconds, FIRST_GAP))

    async def _claim_fresh(self, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        return await self.streams.claim(limit=room, limit_bytes=room_bytes), self.streams.unfinished

    async def _claim_limited(self, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        return await self.streams.claim_limited(limit=room, limit_bytes=room_bytes), self.streams.unfinished

    async def _claim_ordered(self, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        return await self.lanes.claim(limit=room, limit_bytes=room_bytes, paused=self.streams.paused), self.lanes.unfinished

    async def _scan_due(self, room: int, room_bytes: int) -> tuple[None, bool]:  # noqa: ARG002 - all sources are asked like this
        """Scan for messages whose wait is over; a later claim of the right source then claims each of them."""
        page = await self._store.scan_due(after=self._after, sought=self.sought)
        self._after = page.due
        self.found(page.findings)
        # For a while, scans find messages again that wait for a limit or their turn: these alone are no reason for an early scan.
        seen, self._seen_due = self._seen_due, {one.position for one in page.findings}
        if not self._seen_due <= seen:
            self._due.hint()
        return None, page.reached is not None

    async def _claim_waiting(self, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        group = self.backlog.next(room, self.streams.paused, self._strangers)
        return await self._claim_found(self.backlog, "waiting", group, room, room_bytes), False

    async def _claim_suspect(self, room: int, room_bytes: int) -> tuple[Batch | None, bool]:
        group = self.suspects.next(room, self.streams.paused)
        batch = await self._claim_found(self.suspects.backlog, SUSPECT, group, room, room_bytes)
        if batch:
            self.suspects.took(batch)
            self.lanes.took(batch)
        return batch, False

    async def _claim_found(self, backlog: Backlog, source: str, group: Sequence[ScanFinding], room: int, room_bytes: int) -> Batch | None:
        """Claim messages that a scan has found. Messages that did not fit are tried again; all other messages are left to the next scan."""
        if not group:
            return None
        wanted = At([one.position for one in group], source, self.lanes.fence(group))
        claimed = await self._store.claim(wanted, limit=room, limit_bytes=room_bytes)
        taken = {claim.position for claim in claimed.batch.claims} if claimed.batch else set()
        self.stranded += sum(one.kind == "stranded" and one.position in taken for one in group)
        stays = claimed.full and bool(taken)
        backlog.drop(one for one in group if not stays or one.position in taken or one.position in claimed.refused)
        return claimed.batch
