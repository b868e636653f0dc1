"""Where the search for the head of an ordering key starts, so that it does not scan settled messages again; no I/O.

A key's head is its lowest message in any state. Once a snapshot has shown the head at a position, later snapshots show messages of that
key only from that position on, with one exception. Transactions that were running in the first snapshot may still show messages below
the position; messages of any transaction that began later have higher positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from relay.claims.cursor import Snapshot
from relay.memory import of_text
from relay.message import START, Position
from relay.ports import ScanFinding

MOST_KEYS = 10_000
"""Most keys whose bounds are kept, with as much room again for keys with many messages. For other keys, the search covers all messages."""
OFTEN = 64
"""Number of searches for a key's head after which its bound is kept separately from the bounds of new keys."""
MOST_BYTES = 8 << 20
"""Most bytes of keys and their bounds; there is as much room again for keys with many messages."""
NEAR = 16
"""Transactions this close below a head are not remembered one by one: the bound is set below them, and the search scans a few dead rows."""
MOST_LATE = 256
"""How many of the oldest running transactions a bound remembers; the bound stays below the next running transaction."""
ID_BYTES = 8
"""Bytes for each transaction that a bound remembers; the number objects themselves are shared."""


class KeyBound(NamedTuple):
    """The position from which a key has messages, and the transactions that may have messages below it."""

    start: Position
    late: tuple[int, ...]


NOWHERE = KeyBound(START, ())


class _Known(NamedTuple):
    """A bound, and how often the key's head was searched for: about as many of the key's messages were settled below the bound."""

    bound: KeyBound
    looks: int


class _Tier:
    """Bounds of as many keys as fit; the most recently used are at the end."""

    def __init__(self, most: int, most_bytes: int, drop: Callable[[OrderedDict[str, _Known]], str]) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._drop = drop
        self._size = 0
        self.known: OrderedDict[str, _Known] = OrderedDict()

    def put(self, key: str, known: _Known) -> None:
        """Keep a bound, and drop other bounds until all fit."""
        self.known[key] = known
        self._size += _size(key, known.bound)
        while len(self.known) > self._most or self._size > self._most_bytes:
            self.pop(self._drop(self.known))

    def pop(self, key: str) -> _Known | None:
        """Forget a key; return its entry."""
        known = self.known.pop(key, None)
        self._size -= 0 if known is None else _size(key, known.bound)
        return known

    def clear(self) -> None:
        """Forget all keys."""
        self.known.clear()
        self._size = 0


class KeyBounds:
    """The bounds of the most recent keys, and separately those of the keys with the most messages.

    Without a bound, the search for a key's head scans all of the key's settled messages that vacuum cannot remove because of
    an old snapshot. So many new keys must not displace the keys for which this search takes long.
    """

    def __init__(self, most: int = MOST_KEYS, most_bytes: int = MOST_BYTES) -> None:
        self._seldom = _Tier(most, most_bytes, drop=lambda known: next(iter(known)))
        self._often = _Tier(most, most_bytes, drop=lambda known: min(known, key=lambda key: known[key].looks))
        self._running: dict[int, int] = {}

    @property
    def running(self) -> list[int]:
        """Transactions that ran in the last snapshot: each may have messages below any bound above it, and may have ended since."""
        return [*self._running]

    def of(self, keys: Sequence[str]) -> list[KeyBound]:
        """The bound of each key, without the late transactions that `running` names for all keys."""
        return [self._without_running(self._bound_of(key)) for key in keys]

    def learn(self, keys: Sequence[str], heads: Mapping[str, ScanFinding], snapshot: Snapshot) -> None:
        """Record the result of a statement that searched for the heads of `keys` by their bounds.

        Args:
            keys: all keys in the statement; the snapshot shows no message of a key that is not in `heads`.
            heads: the heads found.
            snapshot: the statement's own snapshot, no older than the last one.

        """
        # If a transaction also ran in the last snapshot, its number object is kept, so that thousands of bounds share the object.
        self._running = {(shared := self._running.get(xid, xid)): shared for xid in sorted(snapshot.running)}
        running = self.running
        nothing = _bound(Position(snapshot.xmax, 0), running)
        for key in keys:
            known = self._pop(key)
            looks = 1 if known is None else known.looks + 1
            bound = _bound(heads[key].position, running) if key in heads else nothing
            (self._often if looks >= OFTEN else self._seldom).put(key, _Known(bound, looks))

    def seen(self, key: str, position: Position) -> None:
        """Note a message of this key that a scan found. A bound above it is wrong, unless the message's transaction is late for it."""
        bound = self._bound_of(key)
        if position < bound.start and position.xid not in bound.late:
            self._pop(key)

    def forget(self) -> None:
        """Forget all bounds: the connection is new, and a failover may have lowered the xid counter."""
        self._seldom.clear()
        self._often.clear()
        self._running = {}

    def _pop(self, key: str) -> _Known | None:
        return self._seldom.pop(key) or self._often.pop(key)

    def _bound_of(self, key: str) -> KeyBound:
        known = self._often.known.get(key) or self._seldom.known.get(key)
        return NOWHERE if known is None else known.bound

    def _without_running(self, bound: KeyBound) -> KeyBound:
        return KeyBound(bound.start, tuple(xid for xid in bound.late if xid not in self._running))


def _size(key: str, bound: KeyBound) -> int:
    return of_text(key) + ID_BYTES * len(bound.late)


def _bound(start: Position, running: Sequence[int]) -> KeyBound:
    """The highest bound at or below `start` with few running transactions below it, and no running transaction close below it."""
    below = bisect_left(running, start.xid)
    kept = min(bisect_left(running, start.xid - NEAR), MOST_LATE)
    return KeyBound(Position(running[kept], 0) if kept < below else start, tuple(running[:kept]))
