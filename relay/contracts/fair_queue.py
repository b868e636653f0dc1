"""Fair queueing: which exchange has the next turn, so that all have equal shares of the time, whatever a turn takes. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_LEAST: Final = 1e-6
"""Seconds that a turn counts at the least, so that nobody goes on for ever by turns that a clock does not see."""


@dataclass(slots=True)
class _Share:
    begins: float
    """Virtual time at which its next turn begins: what it has had."""
    longest: float = 0.0
    """Seconds of its longest turn so far."""
    arrived: int = 0
    """Number of its arrival among those that wait; 0: it does not wait."""


class FairQueue:
    """Fair queueing by virtual time.

    Next is whose next turn would end first, if it took as long as the longest one before. Who arrives begins at the virtual time of
    the last turn that began, and its first turn is expected to take none: so it goes next, and neither gains nor owes by what was before.
    """

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._now = 0.0
        self._arrivals = 0

    def arrive(self, name: str) -> None:
        """It waits for a turn from now on."""
        share = self._shares.setdefault(name, _Share(self._now))
        if not share.arrived:
            self._arrivals += 1
            share.begins, share.arrived = max(share.begins, self._now), self._arrivals

    def leave(self, name: str) -> None:
        """It waits no more."""
        self._shares[name].arrived = 0

    def next(self) -> str | None:
        """Whose turn it is, of those that wait; of several the last to arrive."""
        waiting = [(share.begins + share.longest, -share.arrived, name) for name, share in self._shares.items() if share.arrived]
        if not waiting:
            return None
        name = min(waiting)[2]
        self._now = max(self._now, self._shares[name].begins)
        return name

    def had(self, name: str, seconds: float) -> None:
        """Its turn took so long."""
        share = self._shares[name]
        share.begins += max(seconds, _LEAST)
        share.longest = max(seconds, share.longest)

    def forget(self) -> None:
        """Nobody waits, and nobody has a turn: all are equal again."""
        self._shares.clear()
        self._now = 0.0


class FairTurns:
    """Gives turns, one at a time.

    Args:
        most: seconds that a turn counts at the most: one that took longer may have stood still with the machine.
        rest: seconds between two turns, for each second that the first of them counts.
        clock: monotonic seconds.

    """

    def __init__(self, *, most: float, rest: float = 0.0, clock: Callable[[], float]) -> None:
        self._most = most
        self._rest = rest
        self._clock = clock
        self._shares = FairQueue()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it as a context."""
        await self._come(name)
        began = self._clock()
        try:
            yield
        finally:
            took = min(self._clock() - began, self._most)
            self._shares.had(name, took)
            # Later, so that who comes back at once is among those of whom the next is chosen.
            asyncio.get_running_loop().call_later(took * self._rest, self._go_on)

    async def _come(self, name: str) -> None:
        self._shares.arrive(name)
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(mine)
        if not self._taken:
            self._go_on()
        try:
            await mine
        except asyncio.CancelledError:
            if mine in self._waiting.get(name, ()):
                self._withdraw(name, mine)
            elif not mine.cancelled():  # its turn had just come
                self._go_on()
            raise

    def _go_on(self) -> None:
        """Give the next turn to the first who has not been cut off meanwhile."""
        while (name := self._shares.next()) is not None:
            chosen = self._waiting[name][0]
            self._withdraw(name, chosen)
            if not chosen.done():
                self._taken = True
                chosen.set_result(None)
                return
        self._taken = False
        self._shares.forget()

    def _withdraw(self, name: str, one: asyncio.Future[None]) -> None:
        self._waiting[name].remove(one)
        if not self._waiting[name]:
            del self._waiting[name]
            self._shares.leave(name)
