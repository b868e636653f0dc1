"""A queue of ordering keys whose heads may be ready; no I/O.

A key whose head is in flight is not looked for: it is asked for again when that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from relay.memory import of_text

MAX_KEYS: Final = 20_000
"""Keys that are asked for at a time; what is more the next round of the scrub finds again."""
MAX_BYTES: Final = 8 << 20
"""Bytes of these keys: some thousand of the longest."""


class KeyQueue:
    """Keys whose head may be ready, with their lanes, in the order in which they are asked for; none of them is in flight."""

    def __init__(self, most: int = MAX_KEYS, most_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size = 0
        self._keys: dict[str, int] = {}
        self._in_flight: dict[str, bool] = {}
        """Keys whose head we hold; True where something of the key was found meanwhile."""

    def ask(self, keys: Mapping[str, int]) -> None:
        """Look for these too, behind those that are asked for already; one that is in flight when it is settled."""
        for key, lane in keys.items():
            if key in self._in_flight:
                self._in_flight[key] = True
            elif key in self._keys:
                self._keys[key] = lane
            elif self._filled < 1:
                self._keys[key] = lane
                self._size += of_text(key)

    def first(self, most: int) -> list[str]:
        """Those whose turn it is; they stay until they are dropped or taken."""
        return list(islice(self._keys, most))

    def drop(self, keys: Iterable[str]) -> None:
        """These are not asked for any more."""
        for key in keys:
            if self._keys.pop(key, None) is not None:
                self._size -= of_text(key)

    def put_behind(self, keys: Iterable[str]) -> None:
        """Those of these that are still asked for have their turn after all others."""
        for key in [key for key in keys if key in self._keys]:
            self._keys[key] = self._keys.pop(key)

    def took(self, key: str) -> None:
        """The key's head is in flight."""
        self.drop((key,))
        self._in_flight[key] = False

    def settled(self, key: str) -> bool:
        """The key's head is in flight no more; True if something of the key was found meanwhile."""
        return self._in_flight.pop(key, False)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Ask only for those in lanes that are wanted still."""
        self.drop([key for key, lane in self._keys.items() if not wanted(lane)])

    def clear(self) -> None:
        """Ask for none; what is in flight stays so."""
        self._keys.clear()
        self._size = 0

    @property
    def enough(self) -> bool:
        """More than half of the room is taken."""
        return self._filled * 2 > 1

    @property
    def full(self) -> bool:
        """What is left of the room is kept for keys that are listed."""
        return self._filled * 4 >= 3  # noqa: PLR2004 - three quarters

    @property
    def _filled(self) -> float:
        """Share of the room that is taken, in keys or in bytes."""
        return max(len(self._keys) / self._most, self._size / self._most_bytes)

    def __len__(self) -> int:
        """How many keys are asked for."""
        return len(self._keys)
