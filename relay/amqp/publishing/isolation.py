"""Messages that may have ended a connection take turns: each is sent while the broker has nothing else to process. No I/O.

RabbitMQ closes the whole connection over some errors, and does not say which message is the cause. Every message that the broker
may have been processing is a suspect and is sent again alone: no other message is written until the broker has processed the suspect.
If the connection ends again, only one message, or a few, can be the cause. After each turn the other exchanges may write for as long
as they had to wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from relay.amqp.publishing.exchange_channel import ExchangeChannel
from relay.amqp.publishing.routes import Route

PATIENCE: Final = 1.0
"""Most seconds to wait until the broker has processed everything else, and then again until it has processed the suspect."""


class Isolation:
    """Exchange channels of messages that are sent alone, and whether other exchange channels may write.

    Args:
        exchange_channels: all exchange channels of the connection.
        clock: monotonic seconds.

    """

    def __init__(self, exchange_channels: Mapping[Route, ExchangeChannel], clock: Callable[[], float]) -> None:
        self._exchange_channels = exchange_channels
        self._clock = clock
        self._waiting: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Exchange channels that wait for their turn, each with the start of its wait."""
        self._current: ExchangeChannel | None = None
        self._since: float | None = None
        """Since when the other exchange channels write nothing."""
        self._went_at = 0.0
        self._others_until = 0.0
        self.active = False
        """Whether an exchange channel waits for its turn or has its turn."""

    def is_going(self, exchange_channel: ExchangeChannel) -> bool:
        """Whether it is this exchange channel's turn."""
        return exchange_channel is self._current

    def add(self, exchange_channel: ExchangeChannel) -> None:
        """Let an exchange channel wait for its turn."""
        self._waiting.setdefault(exchange_channel, self._clock())
        self.active = True

    def discard(self, exchange_channel: ExchangeChannel) -> None:
        """Forget an exchange channel that no longer waits."""
        self._waiting.pop(exchange_channel, None)
        self.active = self._current is not None or bool(self._waiting)

    def kept(self, ready: Iterable[ExchangeChannel]) -> Iterator[tuple[ExchangeChannel, float]]:
        """Exchange channels that wait for their turn, and channels in `ready` that may not write now; each with the start of its wait."""
        yield from self._waiting.items()
        if self._since is not None:
            yield from ((exchange_channel, self._since) for exchange_channel in ready if exchange_channel.eager)

    def holds_others(self) -> bool:
        """End the current turn if it is over; return whether no other exchange channel may write now."""
        now = self._clock()
        if self._current is not None and (not self._current.unseen or now >= self._went_at + PATIENCE):
            self._others_until = now + (now - (self._since or now))
            self._current = self._since = None
            self.active = bool(self._waiting)
        return self._current is not None or bool(self._waiting and now >= self._others_until)

    def next(self) -> ExchangeChannel | None:
        """The exchange channel whose turn begins. None if no exchange channel waits, or the broker has not processed everything else."""
        if self._current is not None or not self._waiting:
            return None
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now < self._since + PATIENCE and any(exchange_channel.unseen for exchange_channel in self._exchange_channels.values()):
            return None
        self._current, self._went_at = self._waiting.popitem(last=False)[0], now
        return self._current
