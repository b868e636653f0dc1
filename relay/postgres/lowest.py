"""How low this relay may hold a lock: where the look for expired locks of its own begins, also after its death; no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.message import START, Position

UNHEARD = 10.0
"""Seconds beyond the lock time in which locks of a claim whose answer was lost are looked for."""


class Lowest:
    """The lowest position that a heartbeat must tell.

    Args:
        lock_seconds: how long a lock lasts now.
        sweep_soonest: seconds between two sweeps of our own locks, at the least.

    """

    def __init__(self, lock_seconds: Callable[[], float], sweep_soonest: float) -> None:
        self._lock_seconds = lock_seconds
        self._sweep_soonest = sweep_soonest
        self.told = START
        """What the database knows."""
        self._since_told: list[Position] = []
        self._fetching: list[Position] = []
        self._sweeps_owed = 0
        self._claimed_since = False

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

    @property
    def fetches(self) -> bool:
        """What was claimed lacks payloads."""
        return bool(self._fetching)

    def lose(self) -> None:
        """A lock may stand that nobody has in hand; a sweep of our own locks finds it.

        Sweeps are counted that came through, and no seconds: this machine's clock may step ahead, and the database be away. They look
        no higher than this relay has claimed, so none counts before the next claim.
        """
        self._claimed_since = False
        self._sweeps_owed = math.ceil((self._lock_seconds() + UNHEARD) / self._sweep_soonest) + 1

    def heard(self) -> None:
        """A claim was answered."""
        self._claimed_since = True

    def swept(self) -> None:
        """A sweep of our own locks came through."""
        if self._claimed_since:
            self._sweeps_owed = max(0, self._sweeps_owed - 1)

    @property
    def unheard(self) -> bool:
        """A claim's answer was lost so lately that what it locked may still be locked, in nobody's hand."""
        return self._sweeps_owed > 0

    def of(self, in_hand: Position) -> Position:
        """What to tell where this is the lowest in hand, which may have been found before the last claim was."""
        return min([in_hand, *self._since_told, *self._fetching, *([self.told] if self.unheard else [])])

    def tell(self) -> None:
        """It is written; no claim came between. What the database makes of it is `told`, if the relay's row is there."""
        self._since_told.clear()
