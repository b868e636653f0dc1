"""Streams of unordered messages: one for everything, and one of its own for each exchange that is held back or floods the queue.

An exchange that is paused, silent or floods is split off: the main stream then steps over its messages once, the split-off stream
stands still or goes on from where it stood, and is merged when it has caught up. After a restart it is derived again.

An exchange that is limited is split off as soon as a claim of the main stream could take more of it than it may, and goes on in claims
of its own, as many messages at a time as it may have. While it keeps within its limit the main stream has it.
"""

from __future__ import annotations

from collections.abc import Collection

from relay.claims.frontier import Frontier, Snapshot
from relay.claims.limits import LOOK, Limits
from relay.claims.share import MOST, Share
from relay.claims.stream import EVERYTHING, EXCHANGE, OTHERS, Stream
from relay.message import START, Batch, Position
from relay.ports import ClaimStore

WALK = 10_000
"""Messages that a claim looks at, at the most, where others than its own stand between: ten milliseconds, in which every claim waits."""
STEPS = 5
"""Walks of the main stream over messages of others, one after the other, before anything else has its turn: some 50 ms."""
PASSED_OVER = 8
"""Claims of floods for each look at the main stream when it came up empty and there was nothing but floods lately."""


class Streams:
    """The main stream and the ones split off from it.

    Args:
        store: where messages are claimed.
        share: says which exchanges flood, and how much of them to claim; without it none is split off for that.
        limits: says which exchanges are limited, and how many messages of them may be claimed.

    """

    def __init__(self, store: ClaimStore, share: Share | None = None, limits: Limits | None = None) -> None:
        self._store = store
        self.walk = WALK
        self._share = share
        self._limits = limits or Limits()
        self._main = Stream(store)
        self._branches: dict[str, Stream] = {}
        self._held: frozenset[str] = frozenset()
        self._turn = 0
        self._reached = START
        self._passed_over = 0
        """Claims before the main stream is asked first again."""
        self._stepping = False
        self._main_took = 0
        """Messages that the last claim of the main stream found, or would have found with all its room."""
        self.unfinished = False
        """The last claim found nothing but has not come to the end."""
        self.starved = False
        """The last claim left out a flood that has enough in hand."""

    @property
    def held(self) -> list[str]:
        """Exchanges that are not claimed now, sorted."""
        return sorted(self._held)

    def hold(self, exchanges: Collection[str]) -> bool:
        """Hold exactly these exchanges from now on; return whether that let one go."""
        for exchange in sorted(exchanges):
            if exchange not in self._branches:
                self._branches[exchange] = self._split()
        released = bool(self._held - frozenset(exchanges))
        self._held = frozenset(exchanges)
        return released

    def hint(self) -> None:
        """Messages may have been inserted: look at the main stream at once."""
        self._passed_over = 0

    def took(self, batch: Batch) -> None:
        """Learn what was claimed, here or elsewhere: whether others than the floods have messages."""
        if self._share:
            self._share.took(batch)

    async def claim(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Claim from the main stream and the split-off ones that may go on, each first in its turn: a backlog delays no other."""
        self.unfinished = self.starved = False
        for name in self._in_turn():
            batch = await (self._claim_main(limit, limit_bytes) if name is None else self._claim_branch(name, limit, limit_bytes))
            if batch:
                return batch
        return None

    async def claim_limited(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Claim from one of the limited exchanges that stand apart, as much as it may have; each has its turn."""
        self.unfinished = self.starved = False
        for name in self._limited_apart():
            if self._branches[name].look_at > self._limits.clock():
                continue
            batch = await self._claim_branch(name, limit, limit_bytes)
            if batch:
                self._to_the_end(name)
                return batch
        return None

    def until_limited(self) -> float | None:
        """Seconds until a limited exchange that stands apart may be asked for; None if none stands apart."""
        now, apart = self._limits.clock(), self._limited_apart()
        return min((max(self._limits.until([name]) or 0.0, self._branches[name].look_at - now) for name in apart), default=None)

    @property
    def behind(self) -> list[str]:
        """Limited exchanges of which a claim left something; one that has not been asked for yet may have nothing."""
        return [name for name in self._limited_apart() if self._branches[name].cut and self._branches[name].caught_up is None]

    @property
    def low(self) -> Position:
        """The lowest position at which any stream may still claim: unordered messages that are claimable below it are stranded."""
        return min(stream.frontier.low for stream in self._all)

    @property
    def going(self) -> list[str]:
        """Exchanges that have a stream of their own which is neither held nor limited."""
        return [name for name in self._branches if name not in self._held and name not in self._limits.names]

    @property
    def low_going(self) -> Position:
        """The lowest position at which a stream that is not held may claim: a held one claims nothing, so its backlog is left out."""
        going = (self._branches[name] for name in (*self.going, *self._limited_apart()))
        return min(stream.frontier.low for stream in (self._main, *going))

    @property
    def top(self) -> Position:
        """The highest head that ever was: locks may be held up to there, also where a held stream stands still far below.

        A claim whose answer was lost with the connection is found by the sweep only up to here, though all streams begin again.
        """
        return max(self._reached, *(stream.frontier.head for stream in self._all))

    @property
    def main(self) -> Frontier:
        """Where the main stream goes on."""
        return self._main.frontier

    @property
    def apart(self) -> list[str]:
        """Exchanges that have a stream of their own."""
        return list(self._branches)

    @property
    def head(self) -> Position:
        """The lowest head."""
        return min(stream.frontier.lowest_head for stream in self._all)

    @property
    def pending(self) -> int:
        """Transactions below a head that may still commit."""
        return sum(len(stream.frontier.pending) for stream in self._all)

    def reset(self) -> None:
        """Begin again from the left: the connection is new, and a failover may have lowered the xid counter."""
        self._reached = self.top
        self.hint()
        for stream in self._all:
            stream.restart()

    @property
    def _all(self) -> list[Stream]:
        return [self._main, *self._branches.values()]

    def _to_the_end(self, name: str) -> None:
        if branch := self._branches.pop(name, None):
            self._branches[name] = branch

    def _limited_apart(self) -> list[str]:
        return [name for name in self._branches if name in self._limits.names and name not in self._held]

    def _in_turn(self) -> list[str | None]:
        """Streams in the order in which they are asked now.

        The main one comes first while it steps over others' messages, as its own may stand behind, and last where it just came up empty.
        """
        names: list[str | None] = [None, *self.going]
        first = self._turn % len(names)
        self._turn += 1
        names = names[first:] + names[:first]
        self._passed_over -= 1
        if not self._stepping and self._passed_over < 0:
            return names
        branches = [name for name in names if name is not None]
        return [None, *branches] if self._stepping else [*branches, None]

    def _split(self) -> Stream:
        branch = Stream(self._store)
        branch.frontier = self._main.frontier.fork()
        return branch

    async def _claim_main(self, limit: int, limit_bytes: int) -> Batch | None:
        most = self._bound(limit)
        for _ in range(STEPS):
            kind, apart = (OTHERS, list(self._branches)) if self._branches else (EVERYTHING, [])
            batch = await self._main.claim(kind, limit=most, limit_bytes=limit_bytes, walk=self.walk, where={"except": apart})
            if batch or not self._main.cut:
                break
        self._main_took = limit if self._main.full else len(batch.claims) if batch else 0
        if most < limit and self._main.full:
            self._bound(limit, least=limit)
            self._left_some(batch)
        self._came_up(batch, bounded=most < limit)
        return batch

    def _bound(self, limit: int, *, least: int = 1) -> int:
        """Messages that the main stream may claim, whichever they are; limited exchanges that may have less than `least` are split off."""
        for name in [name for name in self._limits.names if name not in self._branches]:
            allowance = self._limits.allowance(name) or 0
            if allowance < least:
                self._branches[name] = self._split()
            else:
                limit = min(limit, allowance)
        return limit

    def _left_some(self, batch: Batch | None) -> None:
        """What was split off just now, because a claim was cut short, goes on with more of what that found."""
        for name in batch.exchanges.keys() & self._branches.keys() if batch else ():
            self._branches[name].cut = True

    def _came_up(self, batch: Batch | None, *, bounded: bool) -> None:
        """Split off what floods; look again at once after a find, else later and later."""
        cut = self._main.cut
        self._stepping = cut and not batch
        self.unfinished = self.unfinished or self._stepping
        soon = batch or cut or not self._share or self._share.crowded(self._all_floods)
        self._passed_over = 0 if soon else PASSED_OVER
        flood = self._share.flooding(batch) if self._share and batch and self._main.full and not bounded else None
        if flood is not None and flood not in self._branches and len(self.going) < MOST:
            self._branches[flood] = self._split()

    @property
    def _all_floods(self) -> list[str]:
        """What makes no flood small: the others, and what waits for its limit anyway."""
        return [*self.going, *self.behind]

    def _room(self, exchange: str, limit: int) -> int:
        """Messages of a split-off exchange that may be claimed now; it may have been held since this round began."""
        if exchange in self._held:
            return 0
        allowance = self._limits.allowance(exchange)
        if allowance == 0:
            return 0
        floods = self.going if allowance is None else [exchange, *self.going]
        room = self._share.room(exchange, floods, limit, beside=self.behind) if self._share else limit
        self.starved = self.starved or room <= 0
        return room if allowance is None else min(room, allowance)

    async def _claim_branch(self, exchange: str, limit: int, limit_bytes: int) -> Batch | None:
        branch, room = self._branches[exchange], self._room(exchange, limit)
        if room <= 0:
            return None
        batch = await branch.claim(EXCHANGE, limit=room, limit_bytes=limit_bytes, walk=self.walk, where={"exchange": exchange})
        self.unfinished = self.unfinished or (branch.cut and not batch)
        if branch.caught_up and exchange not in self._held:
            self._rejoin(exchange, branch, branch.caught_up, idle=not batch)
        return batch

    def _rejoin(self, exchange: str, branch: Stream, caught_up: Snapshot, *, idle: bool) -> None:
        """Merge a stream that has caught up; a limited one only where the main stream's claims are as small as it may have them."""
        if (allowance := self._limits.allowance(exchange)) is None or (idle and allowance >= max(self._main_took, 1)):
            self._main.frontier.merge(branch.frontier, caught_up)
            del self._branches[exchange]
        elif idle:
            branch.look_at = self._limits.clock() + LOOK * len(self._limited_apart())
