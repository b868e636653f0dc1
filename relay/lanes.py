"""Messages in order per key: which lanes are ours, where to discover heads of keys, and which keys have come free.

A key's head is its lowest message in any state; only the head may be in flight. Heads are discovered once, above the lanes'
head; a successor is asked for by its key when the head before it was settled, so a parked key costs its lane nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from relay.message import Archive, Batch, Outcome, Portion
from relay.ports import ClaimStore, Due
from relay.streams import Stream

LANES = 64
"""Fixed in the database by `queue_message_lane_of`."""
KEYS_PER_CLAIM = 500


class LaneStore(ClaimStore, Protocol):
    """A claim store that also keeps lanes."""

    async def keep_lanes(self) -> dict[int, int]:
        """Renew, give up and take lanes; return the epochs of those that are ours now.

        Raises:
            StoreError: the lanes are not certain any more.
        """

    async def wake_successors(self, keys: Sequence[str]) -> None:
        """Make the heads of these keys due, for whoever owns their lanes."""


def lane_of(ordering_key: str) -> int:
    """The lane of a key, as `queue_message_lane_of` computes it."""
    return int(hashlib.md5(ordering_key.encode(), usedforsecurity=False).hexdigest()[:8], 16) & (LANES - 1)


class Lanes:
    """The ordered messages of the lanes that this relay owns."""

    def __init__(self, store: LaneStore) -> None:
        self._store = store
        self._owned: dict[int, int] = {}
        self._discovery = Stream(store, Due.ORDERED_ABOVE_HEAD, Due.ORDERED_PENDING)
        self._freed: dict[str, None] = {}
        self._strange: dict[str, None] = {}

    @property
    def owned(self) -> int:
        """How many lanes this relay owns."""
        return len(self._owned)

    async def keep(self) -> bool:
        """Renew the lanes' leases and take or give up lanes; look from the left where lanes are new. True if they changed."""
        kept = await self._store.keep_lanes()
        changed = kept != self._owned
        self._owned = kept
        if changed:
            # Gained lanes have heads on the left; a claim that asked for lost ones may have passed over others at its limit.
            self.rediscover()
        return changed

    def rediscover(self) -> None:
        """Look at the lanes from the left once more: after a change of lanes, a resumed exchange, and now and then."""
        self._discovery.restart()

    def reset(self) -> None:
        """Forget lanes and frontier: the connection is new."""
        self._owned = {}
        self.rediscover()

    async def claim(self, *, limit: int, limit_bytes: int, held: list[str]) -> Batch | None:
        """Successors of settled heads first, then newly discovered heads."""
        await self._wake_strange()
        if not self._owned:
            return None
        where = {**self._where(), "except": held}
        if self._freed:
            batch = await self._claim_freed(limit, limit_bytes, where)
            if batch:
                return batch
        return await self._discovery.claim(limit=limit, limit_bytes=limit_bytes, where=where)

    async def claim_waiting(self, *, limit: int, limit_bytes: int, held: list[str]) -> Batch | None:
        """Heads whose wait is over."""
        if not self._owned:
            return None
        where = {**self._where(), "except": held}
        return (await self._store.claim_low(Due.ORDERED_WAITING, limit=limit, limit_bytes=limit_bytes, where=where)).batch

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> bool:
        """Note the keys whose head left the queue; return whether there were any."""
        keys = [
            claim.ordering_key
            for claim, outcome in zip(portion.claims, outcomes, strict=True)
            if claim.ordering_key is not None and isinstance(outcome, Archive)
        ]
        for key in keys:
            (self._freed if lane_of(key) in self._owned else self._strange)[key] = None
        return bool(keys)

    def _where(self) -> Mapping[str, object]:
        return {"lanes": list(self._owned), "epochs": list(self._owned.values())}

    async def _claim_freed(self, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Batch | None:
        asked = list(self._freed)[: min(limit, KEYS_PER_CLAIM)]
        claimed = await self._store.claim_low(Due.ORDERED_LISTED, limit=limit, limit_bytes=limit_bytes, where={**where, "keys": asked})
        found = {claim.ordering_key for claim in claimed.batch.claims} if claimed.batch else set()
        for key in asked:
            if claimed.exhausted or key in found:
                self._freed.pop(key, None)
        return claimed.batch

    async def _wake_strange(self) -> None:
        if self._strange:
            keys = list(self._strange)
            await self._store.wake_successors(keys)
            for key in keys:
                self._strange.pop(key, None)
