"""Asks the broker whether it accepts messages for new exchanges: for a few at one time, however many there are. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from relay.amqp.publishing.exchange_channel import ExchangeChannel

MAX_PROBES: Final = 50
"""Most exchanges that the broker is asked for at one time. Each costs the broker a channel, and the broker handles these channels in turn
with those of other exchanges."""
ANSWERS_WITHIN: Final = 1.0
"""Seconds after which an exchange without an answer no longer keeps other exchanges from being asked for. RabbitMQ can need longer to match
a topic's patterns than any message lives."""


class Probes:
    """Exchanges that are asked for, and exchanges that wait to be asked for.

    Args:
        most: how many exchanges are asked for at one time. As many again may be overdue for an answer; beyond that, others wait.
        clock: monotonic seconds.

    """

    def __init__(self, *, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self.unanswered: set[ExchangeChannel] = set()
        """Exchange channels for which the broker's answer is outstanding."""
        self._recent: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """The exchange channels in `unanswered` that are not overdue, and since when the broker has been asked."""
        self.waiting: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Exchange channels that wait until fewer others are asked for, and since when."""
        self._newest = False
        """The newest and the oldest exchange take turns, so that a new one does not wait behind thousands that are missing."""

    def check_full(self) -> bool:
        """Leave out those that are overdue; return whether no more exchanges may be asked for now."""
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
        """The broker has answered, or will not answer."""
        self.unanswered.discard(exchange_channel)
        self._recent.pop(exchange_channel, None)

    def wait(self, exchange_channel: ExchangeChannel) -> None:
        """Let an exchange channel wait until the answer for another exchange has come, or is overdue."""
        self.waiting.setdefault(exchange_channel, self._clock())

    def next(self) -> ExchangeChannel | None:
        """The exchange channel that may be asked for now."""
        if not self.waiting or self.check_full():
            return None
        self._newest = not self._newest
        return self.waiting.popitem(last=self._newest)[0]

    def forget(self, exchange_channel: ExchangeChannel) -> None:
        """The exchange channel no longer needs to be asked for."""
        self.waiting.pop(exchange_channel, None)
