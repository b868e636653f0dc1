"""Where to look for the heads of ordering keys, so that what was settled is not walked again; no I/O.

A key's head is its lowest message in any state. Once a snapshot has shown it at a position, every later snapshot shows messages of
that key only from there on, or of transactions that were running in that snapshot: whatever began later stands higher.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relay.claims.cursor import Snapshot
from relay.memory import of_text
from relay.message import START, Position
from relay.ports import ScanFinding

MOST_KEYS = 10_000
"""Keys whose bounds are kept, the last seen ones; for any other the whole key is looked at."""
MOST_BYTES = 16 << 20
"""Bytes of these keys and of what their bounds remember."""
NEAR = 16
"""Transactions so close below a head are not told apart: the bound goes below them, which costs few dead entries and saves a look at
each of them."""
MOST_LATE = 256
"""Running transactions that a bound remembers, the oldest ones; above them it goes no higher."""
ID_BYTES = 8
"""Of one transaction that a bound remembers: the numbers themselves are shared."""


class KeyBound(NamedTuple):
    """From where on a key has messages, and in which transactions below."""

    start: Position
    late: tuple[int, ...]


NOWHERE = KeyBound(START, ())


class KeyBounds:
    """The bounds of the keys seen last."""

    def __init__(self, most: int = MOST_KEYS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size = 0
        self._known: OrderedDict[str, KeyBound] = OrderedDict()
        self._running: dict[int, int] = {}

    @property
    def running(self) -> list[int]:
        """Transactions that ran in the snapshot learned last: each was running below every bound above it, and may have ended since."""
        return [*self._running]

    def of(self, keys: Sequence[str]) -> list[KeyBound]:
        """The bound of each key, without the late transactions that `running` names for all keys."""
        return [self._without_running(self._known.get(key, NOWHERE)) for key in keys]

    def learn(self, keys: Sequence[str], heads: Mapping[str, ScanFinding], snapshot: Snapshot) -> None:
        """Take over what a statement saw that looked for the heads of `keys` by their bounds.

        Args:
            keys: all that were asked for; one that has no head has no message that the snapshot shows.
            heads: the heads found.
            snapshot: that statement's own, no older than the last one.

        """
        # A number that ran before is kept as it is, so that thousands of bounds share it.
        self._running = {(shared := self._running.get(xid, xid)): shared for xid in sorted(snapshot.running)}
        running = self.running
        nothing = _bound(Position(snapshot.xmax, 0), running)
        for key in keys:
            self._forget(key)
            self._known[key] = _bound(heads[key].position, running) if key in heads else nothing
            self._size += _size(key, self._known[key])
        while len(self._known) > self._most or self._size > self._most_bytes:
            self._forget(next(iter(self._known)))

    def seen(self, key: str, position: Position) -> None:
        """A scan has seen a message of this key: a bound above it is wrong."""
        if key in self._known and position < self._known[key].start:
            self._forget(key)

    def forget(self) -> None:
        """Know nothing: the connection is new, and a failover may have lowered the xid counter."""
        self._known.clear()
        self._running = {}
        self._size = 0

    def _forget(self, key: str) -> None:
        bound = self._known.pop(key, None)
        self._size -= 0 if bound is None else _size(key, bound)

    def _without_running(self, bound: KeyBound) -> KeyBound:
        return KeyBound(bound.start, tuple(xid for xid in bound.late if xid not in self._running))


def _size(key: str, bound: KeyBound) -> int:
    return of_text(key) + ID_BYTES * len(bound.late)


def _bound(start: Position, running: Sequence[int]) -> KeyBound:
    """The highest bound at or below `start` that has few running transactions below it, and none close to it."""
    below = bisect_left(running, start.xid)
    kept = min(bisect_left(running, start.xid - NEAR), MOST_LATE)
    return KeyBound(Position(running[kept], 0) if kept < below else start, tuple(running[:kept]))
