"""What the broker has said of each exchange, remembered without the channel on which it was said. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from relay.amqp.publishing.routes import Route, Way
from relay.message import PublishResult

MOST_REMEMBERED: Final = 10_000
"""Exchanges that are remembered, those that had a message last: half a kilobyte each, and the length of the name."""
FORGET_AFTER: Final = 600.0
"""Seconds without a message after which an exchange is forgotten; by default no backoff is longer."""


@dataclass(slots=True)
class Standing:
    """What the broker has said of an exchange on one of its routes."""

    proven: bool = False
    """It takes what goes there."""
    announced: bool = False
    """It has closed a channel over the exchange, which was reported, and has taken nothing since."""
    refusal: PublishResult | None = None
    """Why it takes nothing."""
    refused_until: float = 0.0
    """When it is asked again: monotonic seconds."""


@dataclass(slots=True)
class _Exchange:
    used_at: float
    by_way: dict[Way, Standing] = field(default_factory=dict)


class ExchangeMemory:
    """Exchanges that had a message lately; constant work, however many there are.

    Args:
        clock: monotonic seconds.

    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._exchanges: OrderedDict[str, _Exchange] = OrderedDict()

    def __len__(self) -> int:
        """How many exchanges are remembered."""
        return len(self._exchanges)

    def standing_of(self, route: Route, standing: Standing | None = None) -> Standing:
        """Return what is known of a route that has a message, or else was known when it got its channel; forget exchanges long unused."""
        exchange, way = route
        now = self._clock()
        known = self._exchanges.get(exchange)
        if known is None:
            known = self._exchanges[exchange] = _Exchange(now)
        known.used_at = now
        self._exchanges.move_to_end(exchange)
        while len(self._exchanges) > MOST_REMEMBERED or next(iter(self._exchanges.values())).used_at < now - FORGET_AFTER:
            self._exchanges.popitem(last=False)
        return known.by_way.setdefault(way, standing or Standing())

    def is_proven(self, exchange: str) -> bool:
        """Whether the broker takes what goes to an exchange, on one of its routes."""
        known = self._exchanges.get(exchange)
        return known is not None and any(standing.proven for standing in known.by_way.values())
