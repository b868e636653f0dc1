"""Messages that wait for a check before they are written: how many of which exchange, and since when none of them was checked. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class Unchecked:
    """Counts by exchange.

    Args:
        clock: monotonic seconds.

    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: Counter[str] = Counter()
        self._since: dict[str, float] = {}

    def come(self, exchanges: Iterable[str]) -> None:
        """A message of each waits from now on."""
        now = self._clock()
        for exchange in exchanges:
            self._waiting[exchange] += 1
            self._since.setdefault(exchange, now)

    def go(self, exchanges: Iterable[str]) -> None:
        """A message of each was checked, or will not be."""
        now = self._clock()
        for exchange in exchanges:
            self._waiting[exchange] -= 1
            self._since[exchange] = now
            if not self._waiting[exchange]:
                del self._waiting[exchange], self._since[exchange]

    def silent(self) -> dict[str, float]:
        """Seconds for which no message of an exchange was checked, of each that has one."""
        now = self._clock()
        return {exchange: now - since for exchange, since in self._since.items()}
