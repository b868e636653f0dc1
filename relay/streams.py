"""Streams of unordered messages: one for everything, and one of its own for each exchange that is held back or floods the queue.

An exchange that is paused, silent or floods is split off: the main stream then steps over its messages once, the split-off stream
stands still or goes on from where it stood, and is merged when it has caught up. After a restart it is derived again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from relay.frontier import Frontier, Snapshot
from relay.message import START, Batch, Position
from relay.ports import Claimed, ClaimStore, Due
from relay.share import MOST, Share

WALK = 10_000
"""Messages that a claim looks at, at the most, where others than its own stand between: ten milliseconds, in which every claim waits."""
STEPS = 5
"""Walks of the main stream over messages of others, one after the other, before anything else has its turn: some 50 ms."""
PASSED_OVER = 8
"""Claims of floods for each look at the main stream when it came up empty and there was nothing but floods lately."""


class Kind(NamedTuple):
    """Which messages a stream is about: the claims above its head and in its pending transactions."""

    above_head: Due
    pending: Due


EVERYTHING = Kind(Due.ABOVE_HEAD, Due.PENDING)
OTHERS = Kind(Due.OTHERS_ABOVE_HEAD, Due.OTHERS_PENDING)
"""Everything while exchanges are apart: each claim looks at a bounded number of messages, as does that of an exchange."""
EXCHANGE = Kind(Due.EXCHANGE_ABOVE_HEAD, Due.EXCHANGE_PENDING)


class Stream:
    """One filter over the queue with a frontier of its own."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self.frontier = Frontier()
        self.caught_up: Snapshot | None = None
        """The snapshot of the last claim above the head if it left nothing, else None."""
        self.cut = False
        """A limit cut the last claim short."""
        self.full = False
        """That limit was room, not the number of messages to look at."""
        self._stretch = 1
        """Times that a walk is as long as usual, because the head cannot follow it: messages of a restored database may stand above it."""

    def restart(self) -> None:
        """Begin again from the left; a claim that is under way moves the frontier of before."""
        self.frontier = Frontier()
        self.caught_up = None

    async def claim(self, kind: Kind, *, limit: int, limit_bytes: int, walk: int, where: Mapping[str, object]) -> Batch | None:
        """Claim what committed late below the head, else what stands above it, else what turned out to have committed meanwhile."""
        self.cut = self.full = False
        where = {**where, "walk": walk * self._stretch}
        return (
            await self._claim_pending(kind, limit, limit_bytes, where)
            or await self._claim_above(kind, limit, limit_bytes, where)
            or await self._claim_pending(kind, limit, limit_bytes, where)
        )

    async def _claim_pending(self, kind: Kind, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        frontier = self.frontier
        asked = sorted(frontier.ripe)
        if not asked:
            return None
        due = OTHERS.pending if kind is EVERYTHING and frontier.reached else kind.pending
        late = {"pending": _literal(asked), "reached": _literal([frontier.reached.get(xid, 0) for xid in asked])}
        claimed = await self._store.claim_low(due, limit=limit, limit_bytes=limit_bytes, where={**where, **late})
        frontier.probed(asked, Snapshot.parse(claimed.snapshot), exhausted=claimed.exhausted, last=claimed.last)
        self._note(claimed)
        return claimed.batch

    async def _claim_above(self, kind: Kind, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        frontier, head = self.frontier, self.frontier.head
        at = {"head_xid": str(head.xid), "head_seq": head.seq}
        claimed: Claimed = await self._store.claim(kind.above_head, limit=limit, limit_bytes=limit_bytes, where={**where, **at})
        snapshot = Snapshot.parse(claimed.snapshot)
        frontier.passed(claimed.last, snapshot, exhausted=claimed.exhausted)
        if claimed.walked:
            self._stretch = 1 if frontier.head > head else self._stretch * 2
        self.caught_up = snapshot if claimed.exhausted else None
        self._note(claimed)
        return claimed.batch

    def _note(self, claimed: Claimed) -> None:
        self.cut = self.cut or not claimed.exhausted
        self.full = self.full or not (claimed.exhausted or claimed.walked)


class Streams:
    """The main stream and the ones split off from it.

    Args:
        store: where messages are claimed.
        share: says which exchanges flood, and how much of them to claim; without it none is split off for that.

    """

    def __init__(self, store: ClaimStore, share: Share | None = None) -> None:
        self._store = store
        self.walk = WALK
        self._share = share
        self._main = Stream(store)
        self._branches: dict[str, Stream] = {}
        self._held: frozenset[str] = frozenset()
        self._turn = 0
        self._reached = START
        self._passed_over = 0
        """Claims before the main stream is asked first again."""
        self._stepping = False
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

    @property
    def low(self) -> Position:
        """The lowest position at which any stream may still claim: unordered messages that are claimable below it are stranded."""
        return min(stream.frontier.low for stream in self._all)

    @property
    def going(self) -> list[str]:
        """Exchanges that have a stream of their own which is not held."""
        return [name for name in self._branches if name not in self._held]

    @property
    def low_going(self) -> Position:
        """The lowest position at which a stream that is not held may claim: a held one claims nothing, so its backlog is left out."""
        return min(stream.frontier.low for stream in (self._main, *(self._branches[name] for name in self.going)))

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
        for _ in range(STEPS):
            kind, apart = (OTHERS, list(self._branches)) if self._branches else (EVERYTHING, [])
            batch = await self._main.claim(kind, limit=limit, limit_bytes=limit_bytes, walk=self.walk, where={"except": apart})
            if batch or not self._main.cut:
                break
        self._came_up(batch)
        return batch

    def _came_up(self, batch: Batch | None) -> None:
        """Split off what floods; look again at once after a find, else later and later."""
        cut = self._main.cut
        self._stepping = cut and not batch
        self.unfinished = self.unfinished or self._stepping
        soon = batch or cut or not self._share or self._share.crowded(self.going)
        self._passed_over = 0 if soon else PASSED_OVER
        flood = self._share.flooding(batch) if self._share and batch and self._main.full else None
        if flood is not None and flood not in self._branches and len(self.going) < MOST:
            self._branches[flood] = self._split()

    def _room(self, exchange: str, limit: int) -> int:
        """Messages of a split-off exchange that may be claimed now; it may have been held since this round began."""
        if exchange in self._held:
            return 0
        room = self._share.room(exchange, self.going, limit) if self._share else limit
        self.starved = self.starved or room <= 0
        return room

    async def _claim_branch(self, exchange: str, limit: int, limit_bytes: int) -> Batch | None:
        branch, room = self._branches[exchange], self._room(exchange, limit)
        if room <= 0:
            return None
        batch = await branch.claim(EXCHANGE, limit=room, limit_bytes=limit_bytes, walk=self.walk, where={"exchange": exchange})
        self.unfinished = self.unfinished or (branch.cut and not batch)
        if branch.caught_up and exchange not in self._held:
            self._main.frontier.merge(branch.frontier, branch.caught_up)
            del self._branches[exchange]
        return batch


def _literal(numbers: Collection[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
