"""Streams of fresh messages without a key: the main stream, and one for each exchange that is held back or floods the queue.

An exchange that is paused, is silent or floods is split off; the main stream then passes over its messages once. The split-off stream
waits, or continues from the place where it was split off, and is merged when it has caught up. After a restart exchanges are split off
again.

If many exchanges resume together, for example after a pause of the broker, they share a stream, because each stream scans the whole queue.

An exchange with a limit is split off as soon as a claim of the main stream could exceed that limit.
The exchange then has separate claims, each as large as the limit allows. It returns to the main stream once these claims find nothing
and the main stream's claims are small enough for the limit.
"""

from __future__ import annotations

from collections.abc import Collection

from relay.claims.branches import Branches
from relay.claims.crowd_bypass import CrowdBypass
from relay.claims.cursor import Cursor
from relay.claims.flood_control import MAX_FLOODS, FloodControl
from relay.claims.rate_limits import LOOK, RateLimits
from relay.claims.stream import Stream
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.message import Batch, Position
from relay.ports import ClaimStore, Places

STEPS = 5
"""Most scans of the main stream that pass only other streams' messages before another source gets its turn: some 50 ms."""
PASSED_OVER = 8
"""Claims of floods between two claims of the main stream while only floods have messages: then the main stream finds nothing."""


class Streams:
    """The main stream and the streams split off from it.

    Args:
        store: where messages are claimed.
        share: says which exchanges flood, and how many of their messages to claim; None: floods are not split off.
        limits: says which exchanges are limited, and how many of their messages may be claimed.
        strangers: says which exchanges have not confirmed a message yet; None: they are treated like all others.

    """

    def __init__(
        self,
        store: ClaimStore,
        share: FloodControl | None = None,
        limits: RateLimits | None = None,
        strangers: UnconfirmedExchanges | None = None,
    ) -> None:
        self._ahead = CrowdBypass(store, strangers) if strangers else None
        self._share = share
        self._limits = limits or RateLimits()
        self._branches = Branches(store)
        self._paused: frozenset[str] = frozenset()
        self._passed_over = 0
        """How many claims floods may still have until the main stream comes first again."""
        self._main_took = 0
        """Messages that the last claim of the main stream found, or would have found with its full room."""
        self.unfinished = False
        """Whether the last claim found nothing, but stopped before the end."""
        self.starved = False
        """Whether the last claim left out a flood, because the flood has enough messages in flight."""

    @property
    def paused(self) -> list[str]:
        """Exchanges that are not claimed now, sorted."""
        return sorted(self._paused)

    def pause(self, exchanges: Collection[str]) -> bool:
        """Pause exactly these exchanges from now on; return whether that resumed an exchange."""
        for exchange in sorted(exchanges):
            self._branches.split(exchange)
        resumed = self._paused - frozenset(exchanges)
        self._paused = frozenset(exchanges)
        going = self._claimable_streams
        if resumed and len(going) > MAX_FLOODS:
            first, others = going[: MAX_FLOODS - 1], going[MAX_FLOODS - 1 :]
            alike = (stream for stream in first if _is_shared(stream) or resumed.issuperset(stream.only or ()))
            self._branches.share_one([*others, *alike])
        return bool(resumed)

    def limit(self, exchanges: Collection[str]) -> None:
        """Take limited exchanges out of streams that they share with others."""
        for exchange in self._branches:
            if exchange in exchanges:
                self._branches.split(exchange)

    def hint(self) -> None:
        """Messages may have been inserted: the main stream waits for at most one claim of each flood."""
        self._passed_over = min(self._passed_over, len(self._claimable_streams))

    def took(self, batch: Batch) -> None:
        """Learn from a batch of any source whether exchanges other than floods have messages."""
        if self._share:
            self._share.took(batch)

    async def claim(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Claim from the main stream or a split-off stream that may be claimed. Streams take turns, so that no backlog delays others."""
        self.unfinished = self.starved = False
        for branch in self._in_turn():
            batch = await (self._claim_others(limit, limit_bytes) if branch is None else self._claim_branch(branch, limit, limit_bytes))
            if batch:
                if branch is not None:
                    self._branches.put_last(branch)
                return batch
        return None

    async def claim_limited(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Claim messages of a split-off limited exchange, as many as its limit allows; such exchanges take turns."""
        self.unfinished = self.starved = False
        for name in self._limited_apart():
            branch = self._branches[name]
            if branch.look_at > self._limits.clock():
                continue
            batch = await self._claim_branch(branch, limit, limit_bytes)
            if batch:
                self._branches.put_last(branch)
                return batch
        return None

    def until_limited(self) -> float | None:
        """Seconds until a limited exchange that is split off may be claimed; None without such an exchange."""
        now, apart = self._limits.clock(), self._limited_apart()
        return min((max(self._limits.until([name]) or 0.0, self._branches[name].look_at - now) for name in apart), default=None)

    @property
    def behind(self) -> list[str]:
        """Limited exchanges with messages left after a claim. Exchanges without a claim so far are not named: they may have no messages."""
        return [name for name in self._limited_apart() if self._branches[name].cut]

    @property
    def going(self) -> list[str]:
        """Exchanges that are split off, and neither paused nor limited."""
        return [name for name in self._branches if name not in self._paused and name not in self._limits.names]

    @property
    def _claimable_streams(self) -> list[Stream]:
        """The streams of the exchanges in `going`, in the order of their turns."""
        return self._branches.of(self.going)

    @property
    def main(self) -> Cursor:
        """Where the main stream continues."""
        return self._main.cursor

    @property
    def _main(self) -> Stream:
        return self._branches.main

    @property
    def heads(self) -> dict[str, Position]:
        """The head of each exchange that is split off."""
        return {name: self._branches[name].cursor.head for name in self._branches}

    def places(self, lowest_in_flight: Position | None) -> Places:
        """The places of a relay whose lowest message in flight is at this position."""
        top = self.main.head
        return Places(min(top, lowest_in_flight or top), min(top, *self.heads.values()) if self.heads else top, top)

    def expects(self, exchange: str, position: Position) -> bool:
        """Whether an exchange's stream itself finds the message at a position below its head: the message's transaction is late."""
        return position.xid in self._branches[exchange].cursor.late

    @property
    def pending(self) -> int:
        """Transactions below a head that may still commit."""
        return sum(len(stream.cursor.late) for stream in self._branches.streams)

    def reset(self) -> None:
        """Begin again from the left: the connection is new, and a failover may have lowered the transaction counter."""
        self._passed_over = 0
        if self._ahead:
            self._ahead.restart()
        for stream in self._branches.streams:
            stream.restart()

    def _limited_apart(self) -> list[str]:
        return [name for name in self._branches if name in self._limits.names and name not in self._paused]

    def _in_turn(self) -> list[Stream | None]:
        """The order in which streams are tried now; None is the main stream. Among floods, the longest without a claim comes first.

        The main stream comes first while it passes over other streams' messages, because its own messages may be after them. It also
        comes first once the floods have had their turns.
        """
        walks = self._main.cut and not self._main.full
        self._passed_over -= 1
        return [None, *self._claimable_streams] if walks or self._passed_over < 0 else [*self._claimable_streams, None]

    async def _claim_others(self, limit: int, limit_bytes: int) -> Batch | None:
        """Claim messages of exchanges that are not split off. During a crowd, claim in turn a few of its messages and messages past it."""
        ahead = self._ahead
        if ahead is None:
            return await self._claim_main(limit, limit_bytes)
        ways = [self._claim_few, self._claim_ahead] if ahead.known else [self._claim_few]
        for claim in reversed(ways) if ahead.turn() else ways:
            batch = await claim(ahead, limit, limit_bytes)
            if batch:
                return batch
        return None

    async def _claim_few(self, ahead: CrowdBypass, limit: int, limit_bytes: int) -> Batch | None:
        room = ahead.room(limit)
        self.starved = self.starved or room <= 0
        if room <= 0:
            return None
        batch = await self._claim_main(room, limit_bytes)
        ahead.note(self._main, batch)
        return batch

    async def _claim_ahead(self, ahead: CrowdBypass, limit: int, limit_bytes: int) -> Batch | None:
        limit, apart = self._bound(limit), list(self._branches)
        for _ in range(STEPS):
            batch = await ahead.claim(self._main.cursor, limit=limit, limit_bytes=limit_bytes, excluded=apart)
            if batch or not ahead.cut:
                break
        self.unfinished = self.unfinished or (ahead.cut and not batch)
        if batch and ahead.full:
            self._split_flood(batch)
        return batch or await ahead.claim_new(limit=limit, limit_bytes=limit_bytes, excluded=apart)

    async def _claim_main(self, limit: int, limit_bytes: int) -> Batch | None:
        main, most = self._main, self._bound(limit)
        for _ in range(STEPS):
            batch = await main.claim(limit=most, limit_bytes=limit_bytes, excluded=list(self._branches))
            if batch or not main.cut:
                break
        soon = batch or main.cut or not self._share or self._share.crowded({*self.going, *self.behind})
        self._main_took = limit if main.full else len(batch.claims) if batch else 0
        self.unfinished = self.unfinished or (main.cut and not batch)
        if most < limit and main.full:
            self._bound(limit, least=limit)
            self._left_some(batch)
        elif batch and main.full:
            self._split_flood(batch)
        self._passed_over = len(self._claimable_streams) if soon else PASSED_OVER
        return batch

    def _bound(self, limit: int, *, least: int = 1) -> int:
        """Messages of any exchange that the main stream may claim. Split off limited exchanges whose allowance is below `least`."""
        for name in [name for name in self._limits.names if name not in self._branches]:
            allowance = self._limits.allowance(name) or 0
            if allowance < least:
                self._branches.split(name)
            else:
                limit = min(limit, allowance)
        return limit

    def _left_some(self, batch: Batch | None) -> None:
        """Note that streams split off just now, because this claim was cut short, have more messages to claim."""
        for name in batch.exchanges if batch else ():
            if name in self._branches:
                self._branches[name].cut = True

    def _split_flood(self, batch: Batch, part: int = 2) -> None:
        flood = self._share.flooding(batch, part) if self._share and len(self._claimable_streams) < MAX_FLOODS else None
        if flood is not None:
            self._branches.split(flood)

    def _room(self, branch: Stream, limit: int) -> int:
        """Messages that a split-off stream may claim now; it may have been paused or replaced since this round began."""
        names = branch.only or set()
        if len(self._branches.exchanges(branch)) < len(names):
            return 0
        allowance = None if _is_shared(branch) else self._limits.allowance(*names)
        if names <= self._paused or allowance == 0:
            return 0
        floods = [stream.only or set() for stream in self._claimable_streams if stream is not branch]
        room = self._share.room(names, floods, limit, ignored=self.behind) if self._share else limit
        self.starved = self.starved or room <= 0
        return room if allowance is None else min(room, allowance)

    async def _claim_branch(self, branch: Stream, limit: int, limit_bytes: int) -> Batch | None:
        room = self._room(branch, limit)
        if room <= 0:
            return None
        batch = await branch.claim(limit=room, limit_bytes=limit_bytes)
        self.unfinished = self.unfinished or (branch.cut and not batch)
        if not branch.cut:
            self._rejoin(branch, idle=not batch)
        elif batch and branch.full and _is_shared(branch):
            self._split_flood(batch, MAX_FLOODS)
        return batch

    def _rejoin(self, branch: Stream, *, idle: bool) -> None:
        """Merge a stream that has caught up; a limited stream only if the main stream's claims are small enough for the limit."""
        for name in self._branches.exchanges(branch):
            if name in self._paused:
                continue
            if (allowance := self._limits.allowance(name)) is None or (idle and allowance >= max(self._main_took, 1)):
                self._branches.return_to_main(name)
            elif idle:
                branch.look_at = self._limits.clock() + LOOK * len(self._limited_apart())


def _is_shared(stream: Stream) -> bool:
    return len(stream.only or ()) > 1
