"""Ordering keys whose heads wait for the limits of their exchanges; no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from relay.claims.limits import Limits

MOST = 100_000
"""Keys of one exchange that are kept; what is more must be listed again when these have gone."""


class Aside:
    """Keys by the exchange of their head, each in its turn."""

    def __init__(self, limits: Limits, most: int = MOST) -> None:
        self._limits = limits
        self._most = most
        self._keys: dict[str, dict[str, None]] = {}
        self._left_out: set[str] = set()

    def put(self, key: str, exchange: str) -> None:
        """Keep a key until its exchange's limit lets it go, if there is room; one that waits for that already keeps its turn."""
        if key not in (keys := self._keys.setdefault(exchange, {})):
            self.took(key)
        if len(keys) < self._most:
            keys[key] = None
        else:
            self._left_out.add(exchange)

    def let_go(self) -> tuple[list[str], bool]:
        """Take out the keys that their limits let go now; and whether more may be found where none is left of those that were kept."""
        gone: list[str] = []
        more = False
        for exchange, keys in list(self._keys.items()):
            for key in list(islice(keys, self._limits.allowance(exchange))):
                del keys[key]
                gone.append(key)
            if not keys:
                more = more or exchange in self._left_out
                self.forget([exchange])
        return gone, more

    def took(self, key: str) -> None:
        """The head of this key was claimed, or may go."""
        for keys in self._keys.values():
            keys.pop(key, None)

    def forget(self, exchanges: Iterable[str]) -> None:
        """Keep no key of these any more."""
        for exchange in exchanges:
            self._keys.pop(exchange, None)
            self._left_out.discard(exchange)

    def clear(self) -> None:
        """Keep none at all."""
        self._keys.clear()
        self._left_out.clear()

    def __contains__(self, key: str) -> bool:
        """Whether the key waits, in its turn."""
        return any(key in keys for keys in self._keys.values())

    @property
    def exchanges(self) -> list[str]:
        """Those whose limits keep keys waiting."""
        return list(self._keys)
