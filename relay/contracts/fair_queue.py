"""Fair queueing: gives turns so that all exchanges get equal shares of time, whatever the length of their turns. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_MIN_TURN: Final = 1e-6
"""The least seconds that a turn counts, so that turns shorter than the clock's resolution are not free."""


@dataclass(slots=True)
class _Share:
    begins: float
    """Virtual time at which the next turn begins: the time used so far."""
    longest: float = 0.0
    """Seconds of the longest turn so far."""
    arrived: int = 0
    """The number of the arrival; 0 while the name is not waiting."""


class FairQueue:
    """Fair queueing by virtual time.

    The next turn goes to the name whose turn is expected to end first. A turn is expected to take as long as the longest earlier turn of
    its name. A new name starts at the virtual time of the last turn, and its first turn is expected to take no time. A new name is
    therefore next, without credit or debt.
    """

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._now = 0.0
        self._arrivals = 0

    def arrive(self, name: str) -> None:
        """Note that a name starts to wait for a turn."""
        share = self._shares.setdefault(name, _Share(self._now))
        if not share.arrived:
            self._arrivals += 1
            share.begins, share.arrived = max(share.begins, self._now), self._arrivals

    def leave(self, name: str) -> None:
        """Note that a name stops waiting."""
        self._shares[name].arrived = 0

    def next(self) -> str | None:
        """The waiting name that gets the next turn; among equals, the name that arrived last."""
        waiting = [(share.begins + share.longest, -share.arrived, name) for name, share in self._shares.items() if share.arrived]
        if not waiting:
            return None
        name = min(waiting)[2]
        self._now = max(self._now, self._shares[name].begins)
        return name

    def charge(self, name: str, seconds: float) -> None:
        """Count the seconds of a turn."""
        share = self._shares[name]
        share.begins += max(seconds, _MIN_TURN)
        share.longest = max(seconds, share.longest)

    def clear(self) -> None:
        """Forget all shares if no name waits or has a turn."""
        self._shares.clear()
        self._now = 0.0


class FairTurns:
    """Gives turns, one at a time.

    Args:
        max_seconds: the most seconds that a turn counts; a longer turn may be caused by a stall of the machine.
        rest: seconds of rest after a turn, for each second that the turn counts.
        clock: returns monotonic seconds.
    """

    def __init__(self, *, max_seconds: float, rest: float = 0.0, clock: Callable[[], float]) -> None:
        self._max_seconds = max_seconds
        self._rest = rest
        self._clock = clock
        self._shares = FairQueue()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._running = False

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn, which lasts until the end of the block."""
        await self._wait_for_turn(name)
        began = self._clock()
        try:
            yield
        finally:
            took = min(self._clock() - began, self._max_seconds)
            self._shares.charge(name, took)
            # The next turn starts a moment later, so that a name that returns at once can be chosen too.
            asyncio.get_running_loop().call_later(took * self._rest, self._start_next)

    async def _wait_for_turn(self, name: str) -> None:
        self._shares.arrive(name)
        turn_given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(turn_given)
        if not self._running:
            self._start_next()
        try:
            await turn_given
        except asyncio.CancelledError:
            if turn_given in self._waiting.get(name, ()):
                self._withdraw(name, turn_given)
            elif not turn_given.cancelled():  # the waiter had just got its turn
                self._start_next()
            raise

    def _start_next(self) -> None:
        """Give the next turn to the first waiter that is not cancelled."""
        while (name := self._shares.next()) is not None:
            chosen = self._waiting[name][0]
            self._withdraw(name, chosen)
            if not chosen.done():
                self._running = True
                chosen.set_result(None)
                return
        self._running = False
        self._shares.clear()

    def _withdraw(self, name: str, one: asyncio.Future[None]) -> None:
        self._waiting[name].remove(one)
        if not self._waiting[name]:
            del self._waiting[name]
            self._shares.leave(name)
