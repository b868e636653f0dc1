"""Exchanges of which the broker is asked whether it takes anything for them: a few at one time, however many there are. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from relay.amqp.publishing.exchange_channel import ExchangeChannel

MAX_PROBES: Final = 50
"""Exchanges of which the broker is asked at one time whether they exist: each costs it a channel, and it takes them in turn with the
messages of others."""
ANSWERS_WITHIN: Final = 1.0
"""Seconds after which an exchange that the broker has not answered for keeps no other from being asked for. Matching a topic's patterns
can take RabbitMQ longer than any message lives."""


class Probes:
    """Who is asked for, and who waits for that.

    Args:
        most: exchanges that are asked for at one time. As many again may be without an answer for longer; then the others wait.
        clock: monotonic seconds.

    """

    def __init__(self, *, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self.unanswered: set[ExchangeChannel] = set()
        """The broker owes an answer."""
        self._recent: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Those of them that it has not owed for long, and since when."""
        self.waiting: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Channels that wait until fewer others are asked for, and since when."""
        self._newest = False
        """The newest and the oldest take turns, so that a new exchange does not wait behind thousands that are missing."""

    @property
    def full(self) -> bool:
        """As many are asked for as may be."""
        if len(self._recent) < self._most:
            return False
        overdue = self._clock() - ANSWERS_WITHIN
        while len(self.unanswered) - len(self._recent) < self._most and self._recent and next(iter(self._recent.values())) <= overdue:
            self._recent.popitem(last=False)
        return len(self._recent) >= self._most

    def began(self, exchange_channel: ExchangeChannel) -> None:
        """The broker was asked."""
        if exchange_channel not in self.unanswered:
            self.unanswered.add(exchange_channel)
            self._recent[exchange_channel] = self._clock()

    def ended(self, exchange_channel: ExchangeChannel) -> None:
        """The broker has answered, or will not."""
        self.unanswered.discard(exchange_channel)
        self._recent.pop(exchange_channel, None)

    def wait(self, exchange_channel: ExchangeChannel) -> None:
        """Ask when an answer has come, or has not come for too long."""
        self.waiting.setdefault(exchange_channel, self._clock())

    def next(self) -> ExchangeChannel | None:
        """Who may be asked for now."""
        if not self.waiting or self.full:
            return None
        self._newest = not self._newest
        return self.waiting.popitem(last=self._newest)[0]

    def forget(self, exchange_channel: ExchangeChannel) -> None:
        """It has nothing to ask for."""
        self.waiting.pop(exchange_channel, None)
