"""What scans have found and no claim has taken yet, by exchange; no I/O.

A position or a key is a hint: the claim checks it again. So anything may be forgotten here at any time, and the next round of the scrub
finds it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from relay.claims.limits import Limits
from relay.claims.strangers import CROWD, Strangers
from relay.message import Position
from relay.ports import Finding

MAX_FOUND = 10_000
"""Messages and keys of one exchange that are remembered."""
MAX_IN_ALL = 50_000
"""Messages that are remembered; where there are many exchanges each has its part, and at least one."""


class Backlog:
    """Positions of unordered messages and keys of ordered ones, each exchange in its turn.

    Args:
        limits: say how many messages of an exchange may be claimed now.
        most: messages and keys of one exchange that are remembered.
        in_all: messages that are remembered.

    """

    def __init__(self, limits: Limits, most: int = MAX_FOUND, in_all: int = MAX_IN_ALL) -> None:
        self._limits = limits
        self._most = most
        self._in_all = in_all
        self._positions: dict[str, dict[Position, bool]] = {}
        """By exchange; True for a stranded message."""
        self._next: dict[Position, str] = {}
        self._keys: dict[str, dict[str, int]] = {}
        self.starved = False
        """Messages of strangers were left out, of which enough are in hand."""
        self.stranded = 0
        """Stranded messages that were claimed since this was read last."""

    def put(self, finding: Finding) -> None:
        """Remember an unordered message, if there is room."""
        positions = self._positions.setdefault(finding.exchange, {})
        if len(positions) < self._room:
            positions.setdefault(finding.position, finding.kind == "stranded")

    def put_key(self, key: str, lane: int, exchange: str) -> None:
        """Remember a key whose head waits for the limit of its exchange, if there is room; one that is there keeps its turn."""
        keys = self._keys.setdefault(exchange, {})
        if key in keys or len(keys) < self._most:
            keys[key] = lane

    def next(self, most: int, held: Collection[str], strangers: Strangers | None = None) -> list[Position]:
        """Positions to claim now, as many as limits allow, and of strangers as have room; they stay until they were tried."""
        self._next, self.starved = {}, False
        strangers = strangers if len(self._positions) > CROWD else None
        left = strangers.room(most) if strangers else most
        for exchange in list(self._positions):
            if len(self._next) >= most:
                break
            strange = strangers is not None and exchange in strangers
            self.starved = self.starved or (strange and left <= 0)
            if exchange in held or (strange and left <= 0):
                continue
            room, allowance = min(most - len(self._next), left if strange else most), self._limits.allowance(exchange)
            mine = self._positions.pop(exchange)
            chosen = list(islice(mine, room if allowance is None else min(allowance, room)))
            self._next |= dict.fromkeys(chosen, exchange)
            left -= len(chosen) if strange else 0
            self._positions[exchange] = mine
        return list(self._next)

    def admit(self, held: Collection[str]) -> dict[str, int]:
        """Take out the keys that limits admit now, with their lanes."""
        admitted: dict[str, int] = {}
        for exchange, keys in self._keys.items():
            for key in [] if exchange in held else list(islice(keys, self._limits.allowance(exchange))):
                admitted[key] = keys.pop(key)
        return admitted

    def tried(self, claimed: Collection[Position], *, full: bool) -> None:
        """Forget what was next, of which this was claimed: all of it, or where the claim was full no more than that."""
        for position in claimed if full else self._next:
            exchange = self._next[position]
            mine = self._positions.get(exchange, {})
            self.stranded += mine.pop(position, False) and position in claimed
            if not mine:
                self._positions.pop(exchange, None)

    def forget(self, exchanges: Iterable[str]) -> None:
        """Remember nothing of these any more."""
        for exchange in exchanges:
            self._positions.pop(exchange, None)
            self._keys.pop(exchange, None)

    def clear(self) -> None:
        """Remember nothing at all."""
        self._positions.clear()
        self._keys.clear()

    @property
    def crowded(self) -> list[str]:
        """Exchanges of which more than half of the room is taken: a scan need not look for more of them."""
        return [exchange for exchange, found in self._positions.items() if len(found) * 2 > self._room]

    @property
    def _room(self) -> int:
        return max(1, min(self._most, self._in_all // max(len(self._positions), 1)))

    @property
    def throttled(self) -> set[str]:
        """Limited exchanges of which something waits for its turn."""
        return {name for name, found in (*self._positions.items(), *self._keys.items()) if found and name in self._limits.names}
