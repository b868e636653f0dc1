"""How far the broker has processed one channel, shown by marks between the messages; no I/O.

A mark is a method without effect (`frames.ask_qos`). A channel's methods are carried out in order (AMQP 0-9-1, section 4.7). So the answer
to a mark proves that the broker has processed everything before the mark; so does a confirm. RabbitMQ hands a connection's methods
to its channels by credit (`credit_flow_default_credit`, `{400, 200}`). While one channel has 400 unprocessed messages, nothing is read
for any channel. New credit comes for each 200 messages. So a channel with at most 200 unprocessed messages never stops the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
MARK_EVERY: Final = 16
"""Messages between two marks. They share the cost of a mark, and at most this many messages are suspected together."""
MOST_UNSEEN: Final = 192
"""Most written messages that the broker has not processed: a multiple of `MARK_EVERY`, and fewer than one grant of the broker's credit."""
WORTH_A_WRITE: Final = MOST_UNSEEN // 2
"""If there is room for fewer messages than this, nothing is written: otherwise a small write would follow each answer."""


class Barriers(Generic[T]):
    """The marks of one channel, from its opening to its end."""

    def __init__(self) -> None:
        self._asked: deque[int] = deque()
        self._answered = 0
        self._seen = 0
        self._written = 0

    @property
    def open(self) -> bool:
        """Whether a mark waits for its answer."""
        return bool(self._asked)

    @property
    def room(self) -> int:
        """Messages that may be written now."""
        room = MOST_UNSEEN - (self._written - self._seen)
        return room if room >= WORTH_A_WRITE else 0

    def ask(self, first: int, count: int) -> list[slice]:
        """Set marks in a write of `count` messages, whose delivery tags begin with `first`; return the runs, each followed by a mark."""
        last = first + count - 1
        self._asked.extend(range(first + MARK_EVERY - 1, last, MARK_EVERY))
        self._asked.append(last)
        self._written = last
        return [slice(start, start + MARK_EVERY) for start in range(0, count, MARK_EVERY)]

    def answered(self) -> bool:
        """Note the answer to the oldest mark; return False if no mark is open."""
        if not self._asked:
            return False
        self._answered = self._asked.popleft()
        self._seen = max(self._seen, self._answered)
        return True

    def confirmed(self, tag: int) -> None:
        """The broker acked or nacked this delivery tag, so it has processed everything that was written before it."""
        self._seen = max(self._seen, tag)

    def part(self, unresolved: Iterable[tuple[int, T]]) -> tuple[list[T], list[T], list[T]]:
        """Divide the open messages of a dead channel, by delivery tag, into accepted, suspected and unprocessed."""
        unresolved = list(unresolved)
        low = self._answered
        first_suspect = next((tag for tag, _ in unresolved if tag > low), low)
        high = next((mark for mark in self._asked if mark >= first_suspect), low)
        parts: tuple[list[T], list[T], list[T]] = ([], [], [])
        for tag, slot in unresolved:
            parts[(tag > low) + (tag > high)].append(slot)
        return parts
