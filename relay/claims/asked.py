"""Ordering keys whose heads are to be looked for, each in its turn; no I/O.

A key whose head is in flight is not looked for: it is asked for again when that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice


class Asked:
    """Keys whose head may be ready, in the order in which they are asked for; none of them is in flight."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._in_flight: dict[str, bool] = {}
        """Keys whose head we hold; True where something of the key was listed meanwhile."""
        self._ahead = 0

    def ask(self, keys: Iterable[str]) -> None:
        """Look for these too, behind those that are asked for already; one that is in flight when it is settled."""
        self._keys.update(dict.fromkeys(key for key in keys if not self._noted(key)))

    def _noted(self, key: str) -> bool:
        if key not in self._in_flight:
            return False
        self._in_flight[key] = True
        return True

    def first(self, most: int) -> list[str]:
        """Those whose turn it is; they stay until they are dropped or taken."""
        keys = list(islice(self._keys, most))
        self._ahead -= len(keys)
        return keys

    def drop(self, keys: Iterable[str]) -> None:
        """These are not asked for any more."""
        for key in keys:
            self._keys.pop(key, None)

    def put_behind(self, keys: Iterable[str]) -> None:
        """Those of these that are still asked for have their turn after all others."""
        for key in [key for key in keys if key in self._keys]:
            self._keys[key] = self._keys.pop(key)

    def took(self, key: str) -> None:
        """The key's head is in flight."""
        self._keys.pop(key, None)
        self._in_flight[key] = False

    def settled(self, key: str) -> bool:
        """The key's head is in flight no more; True if something of the key was listed meanwhile."""
        return self._in_flight.pop(key, False)

    def mark(self) -> None:
        """Note how many are asked for now; see `passed`."""
        self._ahead = len(self._keys)

    @property
    def passed(self) -> bool:
        """Whether all that were asked for at the mark have had their turn."""
        return self._ahead <= 0 or not self._keys

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Ask for those only that are wanted still."""
        self._keys = {key: None for key in self._keys if wanted(key)}

    def clear(self) -> None:
        """Ask for none; what is in flight stays so."""
        self._keys.clear()

    def __len__(self) -> int:
        """How many keys are asked for."""
        return len(self._keys)
