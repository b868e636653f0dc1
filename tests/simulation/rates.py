"""What limits promise: never more deliveries of an exchange than its rate and one burst, however they are looked at."""

from __future__ import annotations

from collections.abc import Callable

from relay.claims.rate_limits import BURST

HEARD = 3.0
"""Seconds after which every relay that is well knows of a limit."""
LATE = 0.5
"""Seconds by which deliveries may stand closer together than their claims did."""
RELAYS = 2


class Rates:
    """A bucket of all relays together for each limited exchange, which a delivery may never find empty.

    Args:
        now: seconds.

    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float, float]] = {}
        """Rate, tokens, and when there were so many."""

    def decide(self, exchange: str, per_second: float | None) -> None:
        """From soon on that many a second, or as many as come."""
        self._buckets.pop(exchange, None)
        if per_second is not None:
            self._buckets[exchange] = (per_second, _most(per_second), self._now() + HEARD)

    def delivered(self, exchange: str) -> bool:
        """Count a delivery; whether its limit allows for it."""
        rate, tokens, at = self._buckets.get(exchange, (0.0, 0.0, float("inf")))
        now = self._now()
        if now < at:
            return True
        tokens = min(tokens + (now - at) * rate, _most(rate)) - 1
        self._buckets[exchange] = (rate, tokens, now)
        return tokens >= 0


def _most(rate: float) -> float:
    return max(rate * BURST, RELAYS) + rate * LATE + 1
