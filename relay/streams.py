"""Streams of unordered messages: one for everything, and one of its own for each exchange that is held back.

An exchange that is paused or silent is split off: the main stream then steps over its messages once, the split-off stream
stands still or goes on from where it stood, and is merged when it has caught up. After a restart it is derived again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relay.frontier import Frontier, Snapshot
from relay.message import START, Batch, Position
from relay.ports import Claimed, ClaimStore, Due


class Stream:
    """One filter over the queue with a frontier of its own."""

    def __init__(self, store: ClaimStore, above_head: Due, pending: Due) -> None:
        self._store = store
        self._above_head = above_head
        self._pending = pending
        self.frontier = Frontier()
        self.caught_up: Snapshot | None = None
        """The snapshot of the last claim above the head if it left nothing, else None."""

    def restart(self) -> None:
        """Begin again from the left; a claim that is under way moves the frontier of before."""
        self.frontier = Frontier()
        self.caught_up = None

    async def claim(self, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        """Claim what committed late below the head, else what stands above it, else what turned out to have committed meanwhile."""
        return (
            await self._claim_pending(limit, limit_bytes, where)
            or await self._claim_above(limit, limit_bytes, where)
            or await self._claim_pending(limit, limit_bytes, where)
        )

    async def _claim_pending(self, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        frontier = self.frontier
        asked = frozenset(frontier.ripe)
        if not asked:
            return None
        literal = "{" + ",".join(map(str, asked)) + "}"
        claimed = await self._store.claim_low(self._pending, limit=limit, limit_bytes=limit_bytes, where={**where, "pending": literal})
        frontier.probed(asked, Snapshot.parse(claimed.snapshot), exhausted=claimed.exhausted)
        return claimed.batch

    async def _claim_above(self, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        frontier, head = self.frontier, self.frontier.head
        at = {"head_xid": str(head.xid), "head_seq": head.seq}
        claimed: Claimed = await self._store.claim(self._above_head, limit=limit, limit_bytes=limit_bytes, where={**where, **at})
        snapshot = Snapshot.parse(claimed.snapshot)
        frontier.passed(claimed.last, snapshot, exhausted=claimed.exhausted)
        self.caught_up = snapshot if claimed.exhausted else None
        return claimed.batch


class Streams:
    """The main stream and the ones split off from it."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._main = Stream(store, Due.ABOVE_HEAD, Due.PENDING)
        self._branches: dict[str, Stream] = {}
        self._held: frozenset[str] = frozenset()
        self._turn = 0
        self._reached = START

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

    async def claim(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Claim from the main stream and the split-off ones that may go on, each first in its turn: a backlog delays no other."""
        names: list[str | None] = [None, *(name for name in self._branches if name not in self._held)]
        first = self._turn % len(names)
        self._turn += 1
        for name in names[first:] + names[:first]:
            batch = await (self._claim_main(limit, limit_bytes) if name is None else self._claim_branch(name, limit, limit_bytes))
            if batch:
                return batch
        return None

    @property
    def low(self) -> Position:
        """The lowest position at which any stream may still claim: unordered messages that are claimable below it are stranded."""
        return min(stream.frontier.low for stream in self._all)

    @property
    def going(self) -> Position:
        """The lowest position at which a stream that is not held may claim: a held one claims nothing, so its backlog is left out."""
        going = (branch for exchange, branch in self._branches.items() if exchange not in self._held)
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
        return min(stream.frontier.head for stream in self._all)

    @property
    def pending(self) -> int:
        """Transactions below a head that may still commit."""
        return sum(len(stream.frontier.pending) for stream in self._all)

    def reset(self) -> None:
        """Begin again from the left: the connection is new, and a failover may have lowered the xid counter."""
        self._reached = self.top
        for stream in self._all:
            stream.restart()

    @property
    def _all(self) -> list[Stream]:
        return [self._main, *self._branches.values()]

    def _split(self) -> Stream:
        branch = Stream(self._store, Due.EXCHANGE_ABOVE_HEAD, Due.EXCHANGE_PENDING)
        branch.frontier = self._main.frontier.fork()
        return branch

    async def _claim_main(self, limit: int, limit_bytes: int) -> Batch | None:
        return await self._main.claim(limit=limit, limit_bytes=limit_bytes, where={"except": list(self._branches)})

    async def _claim_branch(self, exchange: str, limit: int, limit_bytes: int) -> Batch | None:
        branch = self._branches[exchange]
        batch = await branch.claim(limit=limit, limit_bytes=limit_bytes, where={"exchange": exchange})
        if branch.caught_up and exchange not in self._held:
            self._main.frontier.merge(branch.frontier, branch.caught_up)
            del self._branches[exchange]
        return batch
