"""Ordering keys whose heads may be ready; no I/O.

Keys that scans have found wait in one list; new keys, and keys whose head was settled, wait in another. While a key's head is in flight,
the key is not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice, zip_longest
from typing import Final

from relay.memory import of_text

MAX_KEYS: Final = 20_000
"""Most keys in both lists together; the next round of the scrub finds further keys again."""
MAX_BYTES: Final = 8 << 20
"""Most bytes of these keys: a few thousand of the longest keys."""
FOUND_SHARE: Final = 0.5
"""Share of the room that keys found by scans may take; the rest is left to new keys, even if many heads are tried again and again."""
NEW_SHARE: Final = 0.75
"""Share of the room that new keys may take; the rest is for keys found by scans, because the same scan does not return to them."""


class _Line(dict[str, int]):
    """Keys with their lanes, in the order in which they are searched."""

    size = 0
    """Bytes of the keys."""

    def put(self, key: str, lane: int) -> None:
        """Add a key that is not in this list yet."""
        self[key] = lane
        self.size += of_text(key)

    def drop(self, key: str) -> None:
        """Forget a key, if it is in this list."""
        if self.pop(key, None) is not None:
            self.size -= of_text(key)


class KeyQueue:
    """Keys whose heads may be ready, with their lanes, in the order in which they are searched; none of these heads is in flight."""

    def __init__(self, most: int = MAX_KEYS, most_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._new, self._found = self._lines = (_Line(), _Line())
        self._found_first = False
        self._in_flight: dict[str, bool] = {}
        """Keys whose head is in flight. The value is True if another message of the key was found meanwhile."""

    def ask(self, keys: Mapping[str, int], *, found: bool = False) -> None:
        """Add these keys after those that wait already; a key in flight is added when its head is settled.

        Args:
            keys: the keys with their lanes.
            found: a scan has found the keys. They wait after earlier keys found by scans, and share the room for keys found by scans.

        """
        for key, lane in keys.items():
            if key in self._in_flight:
                self._in_flight[key] = True
            elif known := next((line for line in self._lines if key in line), None):
                known[key] = lane
            elif self._share(*self._lines) < 1:
                line, most = (self._found, FOUND_SHARE) if found else (self._new, NEW_SHARE)
                if self._share(line) < most:
                    line.put(key, lane)

    def first(self, most: int) -> list[str]:
        """The keys whose turn it is, alternately from both lists; they stay until they are dropped or taken."""
        self._found_first = not self._found_first
        lines = reversed(self._lines) if self._found_first else self._lines
        both = zip_longest(*(islice(line, most) for line in lines))
        return list(islice((key for key in chain.from_iterable(both) if key is not None), most))

    def drop(self, keys: Iterable[str]) -> None:
        """Remove these keys."""
        for key in keys:
            for line in self._lines:
                line.drop(key)

    def put_behind(self, keys: Iterable[str]) -> None:
        """Move these keys, if they still wait, to the end of their list."""
        for key in keys:
            for line in self._lines:
                if key in line:
                    line[key] = line.pop(key)

    def took(self, key: str) -> None:
        """The key's head is in flight."""
        self.drop((key,))
        self._in_flight[key] = False

    def settled(self, key: str) -> bool:
        """The key's head is no longer in flight. Return True if another message of the key was found meanwhile."""
        return self._in_flight.pop(key, False)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Keep only the keys in lanes that are still wanted."""
        self.drop([key for line in self._lines for key, lane in line.items() if not wanted(lane)])

    def clear(self) -> None:
        """Remove all keys that wait; keys in flight stay."""
        self._new, self._found = self._lines = (_Line(), _Line())

    @property
    def many_new(self) -> bool:
        """Whether new keys take more than half of the room."""
        return self._share(self._new) > 1 / 2

    @property
    def many_found(self) -> bool:
        """Whether keys that scans have found take most of their share of the room: a scan need not look for more."""
        return self._share(self._found) >= FOUND_SHARE * 3 / 4

    def _share(self, *lines: _Line) -> float:
        """The share of the room that these lists take, in keys or in bytes, whichever is larger."""
        return max(sum(map(len, lines)) / self._most, sum(line.size for line in lines) / self._most_bytes)

    def __len__(self) -> int:
        """How many keys wait."""
        return sum(map(len, self._lines))
