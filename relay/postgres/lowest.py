"""How low this relay may hold a lock: where the look for expired locks of its own begins, also after its death; no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.message import START, Position
from relay.ports import Due

UNHEARD = 10.0
"""Seconds beyond the lock time in which locks of a claim whose answer was lost are looked for."""
ABOVE_HEAD = {due.value for due in (Due.ABOVE_HEAD, Due.OTHERS_ABOVE_HEAD, Due.EXCHANGE_ABOVE_HEAD)}
"""Claims whose locks a sweep of our own finds only up to the highest head. Those of all others stand below it, or are found by the indexes
of waiting and of ordered messages."""


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
        self._as_high = True
        """Sweeps look as high as a lost claim may have locked."""

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

    def lose(self, source: str) -> None:
        """A lock of such a claim may stand that nobody has in hand; a sweep of our own locks finds it.

        Sweeps are counted that came through, and no seconds: this machine's clock may step ahead, and the database be away. They look
        no higher than the heads of this relay, so none counts before the next claim above one where that was such a claim.
        """
        self._as_high = self._as_high and source not in ABOVE_HEAD
        self._sweeps_owed = math.ceil((self._lock_seconds() + UNHEARD) / self._sweep_soonest) + 1

    def heard(self, source: str) -> None:
        """All that such a claim found is in hand, or nothing was there: its head moves past what the one before it had locked."""
        self._as_high = self._as_high or source in ABOVE_HEAD

    def swept(self) -> None:
        """A sweep of our own locks came through."""
        if self._as_high:
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
