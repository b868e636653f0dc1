"""The window: limits the messages in flight and names the locks to renew. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from relay.message import Amount, Batch, Claim, Position, by_exchange


class Window:
    """Batches between claim and settle, counted in messages and in bytes."""

    def __init__(self, *, window: int, window_bytes: int) -> None:
        self.max_messages = window
        self._window_bytes = window_bytes
        self._batches: dict[Batch, dict[tuple[int, int], Claim] | None] = {}
        """Claims in flight by batch. None means the whole batch: most batches are removed at once."""
        self._by_exchange: Counter[str] = Counter()
        self._size_by_exchange: Counter[str] = Counter()
        self.stuck: frozenset[str] = frozenset()
        """Silent exchanges that together fill half of the window or more."""
        self.taken = 0
        """Messages claimed since the start."""
        self.messages = 0
        self.size = 0

    def add(self, batch: Batch) -> None:
        """Add a claimed batch."""
        self._batches[batch] = None
        for exchange, amount in batch.exchanges.items():
            self._by_exchange[exchange] += amount.messages
            self._size_by_exchange[exchange] += amount.size
        self.messages += len(batch.claims)
        self.taken += len(batch.claims)
        self.size += batch.size

    def remove(self, batch: Batch, claims: Sequence[Claim]) -> None:
        """Remove claims that were settled, released, or left until their locks expire."""
        if claims is batch.claims and self._batches[batch] is None:
            del self._batches[batch]
            self._subtract(batch.exchanges)
            return
        in_flight = self._in_flight(batch)
        removed = [claim for claim in claims if in_flight.pop((claim.xid, claim.seq), None) is not None]
        if not in_flight:
            del self._batches[batch]
        self._subtract(by_exchange(removed))

    def _in_flight(self, batch: Batch) -> dict[tuple[int, int], Claim]:
        in_flight = self._batches[batch]
        if in_flight is None:
            in_flight = self._batches[batch] = {(claim.xid, claim.seq): claim for claim in batch.claims}
        return in_flight

    def _subtract(self, exchanges: Mapping[str, Amount]) -> None:
        """Subtract counts. Forget exchanges without messages in flight: applications may name any number of exchanges."""
        for exchange, amount in exchanges.items():
            self.messages -= amount.messages
            self.size -= amount.size
            self._by_exchange[exchange] -= amount.messages
            self._size_by_exchange[exchange] -= amount.size
            if not self._by_exchange[exchange]:
                del self._by_exchange[exchange], self._size_by_exchange[exchange]

    def holds(self, position: Position) -> bool:
        """Whether the message at a position is in flight."""
        return any(
            batch.claims[0].position <= position <= batch.claims[-1].position and position in self._in_flight(batch)
            for batch in list(self._batches)
        )

    @property
    def lowest(self) -> Position | None:
        """A position at or below the lowest position in flight; None when nothing is in flight."""
        return min((batch.claims[0].position for batch in self._batches), default=None)

    @property
    def exchanges(self) -> Mapping[str, int]:
        """Messages in flight by exchange."""
        return self._by_exchange

    def count(self, exchange: str) -> int:
        """Messages of an exchange in flight."""
        return self._by_exchange[exchange]

    def size_of(self, exchange: str) -> int:
        """Bytes of an exchange in flight."""
        return self._size_by_exchange[exchange]

    def room(self) -> tuple[int, int]:
        """Messages and bytes that may still be claimed; 0 or less when the window is full.

        Stuck exchanges count for at most half of the window, so that the other half stays free for other exchanges.
        """
        messages, size = self._of(self.stuck)
        return (
            self.max_messages - self.messages + max(0, messages - self.max_messages // 2),
            self._window_bytes - self.size + max(0, size - self._window_bytes // 2),
        )

    def note_silence(self, silent: Collection[str]) -> bool:
        """Note the exchanges that do not confirm; return whether the stuck exchanges changed."""
        messages, size = self._of(silent)
        much = messages * 2 >= self.max_messages or size * 2 >= self._window_bytes
        before, self.stuck = self.stuck, frozenset(silent if much else ())
        return before != self.stuck

    def _of(self, exchanges: Collection[str]) -> tuple[int, int]:
        return sum(self._by_exchange[name] for name in exchanges), sum(self._size_by_exchange[name] for name in exchanges)

    def due_for_renewal(self, now: float, margin: float) -> list[tuple[Batch, list[tuple[int, int]]]]:
        """Positions still in flight whose deadline is less than `margin` seconds away, by their batch."""
        due = [(batch, self._due(batch, now + margin)) for batch in self._batches]
        return [(batch, positions) for batch, positions in due if positions]

    def _due(self, batch: Batch, until: float) -> list[tuple[int, int]]:
        if batch.deadline < until:
            return list(self._in_flight(batch))
        return [position for position, deadline in batch.behind.items() if deadline < until and position in self._in_flight(batch)]
