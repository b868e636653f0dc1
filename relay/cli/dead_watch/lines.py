"""Dead messages that wait for their turn, for handlers or for a replay. Each is read once; each exchange has a bounded number in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from relay.cli.dead_watch.actions import Dead
from relay.cli.dead_watch.cursor import DeadCursor, Place, place_of, read_floor
from relay.cli.dead_watch.turns import ExchangeTurns, WaitingTry

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

LOOK_EVERY: Final = 1.0
"""Seconds of turns after which new messages are read; if reading takes longer, the turns also last longer."""


class Sort(Enum):
    """What the reader does with a message."""

    MINE = auto()
    """The message is added to the line of its exchange."""
    OTHERS = auto()
    """The message is never read again."""
    LATER = auto()
    """The message is read again later; messages after it may be added before."""
    LAST = auto()
    """The message is read again later, together with all messages that died after it."""


class DeadLines:
    """Lines of dead messages, one line for each exchange.

    Args:
        wanted: the filter, as parameters of `watch_dead.sql`.
        line_up: makes the entry of a message; its due time is one of `clock`.
        sort: decides what to do with a message.
        clock: returns the time in seconds.
        unreported: how many messages without a try may be in memory.
    """

    def __init__(
        self,
        wanted: Mapping[str, object],
        *,
        line_up: Callable[[Dead], WaitingTry],
        sort: Callable[[Dead], Sort] = lambda _: Sort.MINE,
        clock: Callable[[], float] = time.monotonic,
        unreported: int | None = None,
    ) -> None:
        self._walk = DeadCursor(wanted)
        self._turns = ExchangeTurns(unreported)
        self._line_up = line_up
        self._sort = sort
        self._clock = clock
        self._is_cut = False
        self._seconds = LOOK_EVERY

    @property
    def waiting(self) -> int:
        """Messages that wait for another try."""
        return self._turns.waiting

    @property
    def has_unreported(self) -> bool:
        """Whether there is a message without a try, in a line or unread."""
        return self._turns.has_unreported or self._has_unread

    def until_due(self) -> float:
        """Seconds until a message is due, or more can be read."""
        return 0.0 if self._has_unread else self._turns.until_due(self._clock())

    def is_done(self, dead: Mapping[str, Any]) -> bool:
        """Whether a message was read and no longer waits."""
        place = place_of(dead)
        return self._walk.knows(place) and not self._turns.is_open(dead["exchange"], place)

    def put(self, one: WaitingTry) -> None:
        """Let a message wait for another try."""
        self._turns.put(one)

    def reread(self, opened: OperatorSession, place: Place) -> Dead | None:
        """The message at a place; None if it is acknowledged."""
        return self._walk.read(opened, place)

    def read(self, opened: OperatorSession, stopped: Callable[[], bool]) -> None:
        """Read new messages, and add them to the lines of their exchanges up to each exchange's limit."""
        began = time.monotonic()
        try:
            self._read_to_the_end(opened, stopped)
        finally:
            self._seconds = max(LOOK_EVERY, time.monotonic() - began)

    def in_turn(self, opened: OperatorSession, stopped: Callable[[], bool]) -> Iterator[WaitingTry]:
        """Yield due messages by their exchanges' turns, until it is time to read again."""
        end = time.monotonic() + self._seconds
        while not stopped() and time.monotonic() < end and (exchange := self._turns.next(self._clock())) is not None:
            if (after := self._turns.unread(exchange)) is not None:
                self._read_on(opened, exchange, after)
            if (one := self._turns.take(exchange, self._clock())) is not None:
                yield one

    @property
    def _has_unread(self) -> bool:
        """Whether the last read stopped early, and another exchange can be added."""
        return self._is_cut and not self._turns.is_full

    def _read_to_the_end(self, opened: OperatorSession, stopped: Callable[[], bool]) -> None:
        # The floor is read before the messages, because messages that become visible later are at or above it.
        floor = read_floor(opened)
        self._is_cut = True
        for dead in self._walk.unseen(opened):
            exchange, place, sort = dead["exchange"], place_of(dead), self._sort(dead)
            if stopped():
                return
            if sort in {Sort.LATER, Sort.LAST}:
                floor = min(floor, place[0])
                if sort is Sort.LAST:
                    break
            elif self._turns.is_left(exchange, place):
                continue
            elif sort is Sort.OTHERS:
                self._walk.saw(dead)
            elif self._turns.admits(exchange):
                self._add(dead)
            elif not self._turns.leave(exchange, place):
                return
        self._is_cut = False
        self._walk.rise(floor, self._turns.is_left)

    def _read_on(self, opened: OperatorSession, exchange: str, after: Place) -> None:
        """Read more messages of an exchange."""
        for dead in self._walk.unseen_of(opened, exchange, after, self._turns.room() + 1):
            place, sort = place_of(dead), self._sort(dead)
            # LATER and LAST do not count below the floor: such a message was this reader's at the first read, and no later read returns it.
            if sort is Sort.OTHERS or (sort is Sort.LATER and not self._walk.is_below(place)):
                continue
            if sort is Sort.LAST and not self._walk.is_below(place):
                break
            if not self._turns.admits(exchange):
                self._turns.leave(exchange, place)
                return
            self._add(dead)
        self._turns.read_all(exchange)

    def _add(self, dead: Dead) -> None:
        self._turns.put(self._line_up(dead))
        self._walk.saw(dead)
