"""How low this relay may hold a lock: where the look for expired locks of its own begins, also after its death; no I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.message import START, Position

UNHEARD = 10.0
"""Seconds beyond the lock time in which locks of a claim whose answer was lost are looked for."""


class Lowest:
    """The lowest position that a heartbeat must tell.

    Args:
        lock_seconds: how long a lock lasts now.

    """

    def __init__(self, lock_seconds: Callable[[], float]) -> None:
        self._lock_seconds = lock_seconds
        self.told = START
        """What the database knows."""
        self._since_told: list[Position] = []
        self._fetching: list[Position] = []
        self._unheard_until = 0.0

    def took(self, position: Position) -> None:
        """Something was claimed that is not in hand yet."""
        self._since_told = [min([position, *self._since_told])]

    @contextmanager
    def fetching(self, position: Position) -> Iterator[None]:
        """What was claimed still lacks payloads, however long it takes."""
        self._fetching = [position]
        try:
            yield
        finally:
            self.took(position)
            self._fetching = []

    def lose(self) -> None:
        """A lock may stand that nobody has in hand; a sweep of our own locks finds it."""
        self._unheard_until = time.monotonic() + self._lock_seconds() + UNHEARD

    @property
    def unheard(self) -> bool:
        """A claim's answer was lost so lately that what it locked may still be locked, in nobody's hand."""
        return time.monotonic() < self._unheard_until

    def of(self, in_hand: Position) -> Position:
        """What to tell where this is the lowest in hand, which may have been found before the last claim was."""
        return min([in_hand, *self._since_told, *self._fetching, *([self.told] if self.unheard else [])])

    def tell(self) -> None:
        """It is written; no claim came between. What the database makes of it is `told`, if the relay's row is there."""
        self._since_told.clear()
