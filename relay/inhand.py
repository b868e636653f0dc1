"""What a relay holds: claimed, not yet settled. Bounds the window and says which locks to renew; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from relay.message import Batch, Claim, Position


class InHand:
    """Batches between claim and settle, counted in messages and in bytes."""

    def __init__(self, *, window: int, window_bytes: int) -> None:
        self.window = window
        self._window_bytes = window_bytes
        self._batches: dict[Batch, dict[tuple[int, int], Claim]] = {}
        self._by_exchange: Counter[str] = Counter()
        self.taken = 0
        """Messages taken in hand since the start."""
        self.messages = 0
        self.size = 0

    def add(self, batch: Batch) -> None:
        """Take a claimed batch in hand."""
        self._batches[batch] = {(claim.xid, claim.seq): claim for claim in batch.claims}
        self._by_exchange.update([claim.exchange for claim in batch.claims])
        self.messages += len(batch.claims)
        self.taken += len(batch.claims)
        self.size += batch.size

    def remove(self, batch: Batch, claims: Iterable[Claim]) -> None:
        """Let go of claims that were settled, released or left to their lock."""
        held = self._batches[batch]
        for claim in claims:
            if held.pop((claim.xid, claim.seq), None) is not None:
                self.messages -= 1
                self.size -= len(claim.payload)
                self._by_exchange[claim.exchange] -= 1
        if not held:
            del self._batches[batch]

    def room(self) -> tuple[int, int]:
        """Messages and bytes that may still be claimed; both at most 0 when the window is full."""
        return self.window - self.messages, self._window_bytes - self.size

    def of_exchange(self, exchange: str) -> int:
        """Messages in hand for one exchange."""
        return self._by_exchange[exchange]

    def due_for_renewal(self, now: float, margin: float) -> list[tuple[Batch, list[tuple[int, int]]]]:
        """Batches whose deadline is less than `margin` seconds away, with the positions still in hand."""
        return [(batch, list(held)) for batch, held in self._batches.items() if batch.deadline - now < margin]

    def lowest(self) -> Position | None:
        """The lowest position in hand."""
        positions = [min(held) for held in self._batches.values() if held]
        return Position(*min(positions)) if positions else None
