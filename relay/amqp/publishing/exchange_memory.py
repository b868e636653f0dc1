"""Remembers the broker's answers about each exchange, even after the channel is closed. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from relay.amqp.publishing.routes import Route, Way
from relay.message import PublishResult

MOST_REMEMBERED: Final = 10_000
"""Most exchanges that are remembered: those used most recently. Each takes half a kilobyte and the length of its name."""
FORGET_AFTER: Final = 600.0
"""Seconds without a message after which an exchange is forgotten; by default no backoff is longer."""


@dataclass(slots=True)
class Standing:
    """The broker's answers about an exchange on one of its routes."""

    proven: bool = False
    """Whether the broker accepts messages for the exchange on this route."""
    announced: bool = False
    """Whether a quarantine was reported, because the broker closed a channel over the exchange and has accepted nothing since."""
    refusal: PublishResult | None = None
    """Why the broker accepts nothing."""
    refused_until: float = 0.0
    """When the exchange is tried again, in monotonic seconds."""


@dataclass(slots=True)
class _Exchange:
    used_at: float
    by_way: dict[Way, Standing] = field(default_factory=dict)


class ExchangeMemory:
    """Exchanges that had a message lately. The work of a call is constant, however many exchanges there are.

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
        """Return the standing of a route with a message, or `standing` if the route was forgotten. Also forget exchanges long unused."""
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
        """Whether the broker accepts messages for an exchange on any of its routes."""
        known = self._exchanges.get(exchange)
        return known is not None and any(standing.proven for standing in known.by_way.values())
