"""One stream of unordered messages: a filter over the queue, and where it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relay.claims.frontier import Frontier, Snapshot
from relay.literals import literal
from relay.message import Batch
from relay.ports import Claimed, ClaimStore, Due


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
        self.look_at = 0.0
        """When a limited exchange that had nothing is asked for again."""
        self._stretch = 1
        """Times that a walk is as long as usual, because the head cannot follow it: messages of a restored database may stand above it."""

    def restart(self) -> None:
        """Begin again from the left; a claim that is under way moves the frontier of before."""
        self.frontier = Frontier()
        self.caught_up = None
        self.look_at = 0.0

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
        late = {"pending": literal(asked), "reached": literal([frontier.reached.get(xid, 0) for xid in asked])}
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
