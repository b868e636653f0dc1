"""Asks the broker whether it accepts messages for new exchanges: for a few exchanges at one time, however many wait. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from relay.amqp.publishing.exchange_channel import ExchangeChannel

MAX_PROBES: Final = 50
"""Most exchanges for which the broker is asked at one time. Each costs the broker a channel, and the broker handles these channels in turn
with the channels of other exchanges."""
ANSWERS_WITHIN: Final = 1.0
"""Seconds after which an exchange without an answer no longer blocks questions about other exchanges. Matching a topic's patterns can take
RabbitMQ longer than any message lives."""


class Probes:
    """Exchanges about which the broker is asked, and exchanges that wait for this question.

    Args:
        most: how many exchanges are asked about at one time. As many again may be overdue for an answer; beyond that, other exchanges wait.
        clock: monotonic seconds.

    """

    def __init__(self, *, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self.unanswered: set[ExchangeChannel] = set()
        """Exchange channels for which the broker's answer is outstanding."""
        self._recent: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """The exchange channels in `unanswered` that are not overdue, each with the time of its question."""
        self.waiting: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Exchange channels that wait until fewer questions are open, each with the start of its wait."""
        self._newest = False
        """The newest and the oldest exchange take turns, so that a new one does not wait behind thousands that are missing."""

    def check_full(self) -> bool:
        """Stop counting exchange channels that are overdue; return whether no further question may be asked now."""
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
        """The exchange channel whose question may be asked now."""
        if not self.waiting or self.check_full():
            return None
        self._newest = not self._newest
        return self.waiting.popitem(last=self._newest)[0]

    def forget(self, exchange_channel: ExchangeChannel) -> None:
        """The exchange channel no longer waits for its question."""
        self.waiting.pop(exchange_channel, None)
