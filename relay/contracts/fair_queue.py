"""Fair queueing: gives turns so that all exchanges have equal shares of time, however long their turns are. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_MIN_TURN: Final = 1e-6
"""Seconds that a turn counts at least, so that turns shorter than the clock's resolution are not free."""


@dataclass(slots=True)
class _Share:
    begins: float
    """Virtual time at which the next turn begins: the time used so far."""
    longest: float = 0.0
    """Seconds of the longest turn so far."""
    arrived: int = 0
    """Number of the arrival; 0 while not waiting."""


class FairQueue:
    """Fair queueing by virtual time.

    The next turn goes to the name whose turn would end first, if it took as long as that name's longest turn before. A new name starts
    at the virtual time of the last turn, and its first turn is expected to take no time. So a new name is next, without credit or debt.
    """

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._now = 0.0
        self._arrivals = 0

    def arrive(self, name: str) -> None:
        """Start to wait for a turn."""
        share = self._shares.setdefault(name, _Share(self._now))
        if not share.arrived:
            self._arrivals += 1
            share.begins, share.arrived = max(share.begins, self._now), self._arrivals

    def leave(self, name: str) -> None:
        """Stop waiting."""
        self._shares[name].arrived = 0

    def next(self) -> str | None:
        """The waiting name with the next turn; the last to arrive among equals."""
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
        """Forget all shares, when no name waits or has a turn."""
        self._shares.clear()
        self._now = 0.0


class FairTurns:
    """Gives turns, one at a time.

    Args:
        max_seconds: seconds that a turn counts at most; a longer one may be a stall of the machine.
        rest: seconds of rest after a turn, for each second that it counts.
        clock: monotonic seconds.

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
        """Wait for a turn, and have it as a context."""
        await self._wait_for_turn(name)
        began = self._clock()
        try:
            yield
        finally:
            took = min(self._clock() - began, self._max_seconds)
            self._shares.charge(name, took)
            # The next turn starts later, so that a name that returns at once can be chosen too.
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
            elif not turn_given.cancelled():  # its turn had just come
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
