"""Decides which dead message is handled next: exchanges take turns, and a message that waits for a retry blocks no other. No I/O."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from relay.cli.dead_watch.actions import Dead, Handler
from relay.cli.dead_watch.cursor import Place, before

MAX_UNREPORTED: Final = 500
"""The most messages in memory without a try, for all exchanges together; each exchange may always have one."""
MAX_WAITING: Final = 10_000
"""The most messages that wait for a retry or for one rule's replay, shared in the same way.

An exchange that has used its share is not read further.
"""
MAX_EXCHANGES: Final = 5000
"""The most exchanges with messages to handle; at this number no further exchange is read."""


@dataclass(eq=False)
class WaitingTry:
    """A message that waits for some handlers."""

    exchange: str
    place: Place
    rest: Sequence[Handler]
    due: float
    dead: Dead | None = None
    """The message's row, until the first attempt."""
    tries: int = 0
    gave_up: bool = False
    """Whether a handler has given up."""


@dataclass(eq=False)
class _Line:
    """The messages of one exchange."""

    heap: list[tuple[float, int, WaitingTry]] = field(default_factory=list)
    waiting_first: int = 0
    read_to: Place | None = None
    """The exchange has unread messages after this position."""

    @property
    def waiting(self) -> int:
        return len(self.heap) - self.waiting_first


class ExchangeTurns:
    """The waiting messages of each exchange; exchanges take turns.

    Every second turn goes to the newest exchange without a turn, so that a new exchange need not wait for all others.

    Args:
        unreported: the most messages without a try, for all exchanges together; each exchange may always have one.
    """

    def __init__(self, unreported: int | None = None) -> None:
        self._unreported = unreported or MAX_UNREPORTED
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        """Exchanges in the order of their arrival; an exchange moves to the end after its turn."""
        self._fresh: OrderedDict[str, None] = OrderedDict()
        """Exchanges that had no turn yet, in the order of their arrival."""
        self._open: set[Place] = set()
        self._counter = itertools.count()
        self._served: str | None = None
        self._newest = False

    @property
    def waiting(self) -> int:
        """Messages that wait for a retry."""
        return sum(line.waiting for line in self._lines.values())

    @property
    def has_unreported(self) -> bool:
        """Whether a message can be handled for the first time."""
        return any(line.waiting_first or self._needs_reading(line) for line in self._lines.values())

    @property
    def is_full(self) -> bool:
        """Whether no further exchange can be added."""
        return len(self._lines) >= MAX_EXCHANGES

    def admits(self, exchange: str) -> bool:
        """Whether one more message of an exchange may be read."""
        line = self._lines.get(exchange)
        if line is None:
            return not self.is_full
        return line.waiting_first < self._share(self._unreported) and line.waiting < self._share(MAX_WAITING)

    def room(self) -> int:
        """How many messages without a try an exchange may have in memory."""
        return self._share(self._unreported)

    def put(self, one: WaitingTry) -> None:
        """Add a message, which waits until it is due."""
        line = self._lines.get(one.exchange)
        if line is None:
            line = self._lines[one.exchange] = _Line()
            self._fresh[one.exchange] = None
        heapq.heappush(line.heap, (one.due, next(self._counter), one))
        line.waiting_first += one.dead is not None
        self._open.add(one.place)

    def leave(self, exchange: str, place: Place) -> bool:
        """Note that a message and all later ones of its exchange were not read; return False if the exchange has no waiting message."""
        line = self._lines.get(exchange)
        if line is not None:
            line.read_to = before(place)
        return line is not None

    def read_all(self, exchange: str) -> None:
        """Note that no message of an exchange is left unread."""
        self._lines[exchange].read_to = None

    def is_left(self, exchange: str, place: Place) -> bool:
        """Whether a message is at an unread position of its exchange."""
        line = self._lines.get(exchange)
        return line is not None and line.read_to is not None and place > line.read_to

    def is_open(self, exchange: str, place: Place) -> bool:
        """Whether a message still waits to be handled or retried."""
        return place in self._open or self.is_left(exchange, place)

    def next(self, now: float) -> str | None:
        """The exchange whose turn it is; None while nothing is due."""
        self._end_turn()
        if (oldest := self._first_due(self._lines, now)) is None:
            return None
        newest = self._first_due(reversed(self._fresh), now)
        is_newest, self._newest = self._newest and newest is not None, not self._newest
        self._served = newest if is_newest else oldest
        return self._served

    def unread(self, exchange: str) -> Place | None:
        """The place after which more messages of an exchange are to be read now; None if none are to be read."""
        line = self._lines[exchange]
        return line.read_to if self._needs_reading(line) else None

    def take(self, exchange: str, now: float) -> WaitingTry | None:
        """The next due message of an exchange; None if no message is due."""
        line = self._lines[exchange]
        if not line.heap or line.heap[0][0] > now:
            return None
        one = heapq.heappop(line.heap)[2]
        line.waiting_first -= one.dead is not None
        self._open.discard(one.place)
        return one

    def until_due(self, now: float) -> float:
        """Seconds until a message is due."""
        return min((self._wait(line, now) for line in self._lines.values()), default=float("inf"))

    def _end_turn(self) -> None:
        if self._served is None:
            return
        exchange, self._served = self._served, None
        self._fresh.pop(exchange, None)
        self._lines.move_to_end(exchange)
        if not self._lines[exchange].heap and self._lines[exchange].read_to is None:
            del self._lines[exchange]

    def _first_due(self, exchanges: Iterable[str], now: float) -> str | None:
        return next((each for each in exchanges if self._wait(self._lines[each], now) <= 0), None)

    def _wait(self, line: _Line, now: float) -> float:
        if self._needs_reading(line):
            return 0.0
        return line.heap[0][0] - now if line.heap else float("inf")

    def _needs_reading(self, line: _Line) -> bool:
        """Whether the exchange has unread messages, and no message that waits for its first attempt."""
        return line.read_to is not None and not line.waiting_first and line.waiting < self._share(MAX_WAITING)

    def _share(self, total: int) -> int:
        return max(1, total // len(self._lines))
