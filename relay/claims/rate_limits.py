"""How many messages of a limited exchange may be claimed now: a token bucket per exchange fills at this relay's share. No I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from relay.message import Batch

BURST = 1.0
"""Seconds' worth of tokens that a full bucket contains, at least one token: the burst after a rest."""
WORTH_A_CLAIM = 0.2
"""Seconds' worth of tokens, at least one token, that a bucket must contain before a claim is worth its statement."""
DEBT = 5.0
"""Seconds' worth of tokens, at least one token, that may be owed: a claim during which a low limit is set must not leave hours of debt."""
LOOK = 0.1
"""If a claim for a limited exchange finds nothing: seconds until its next claim, times the number of limited exchanges split off."""
Wanted = TypeVar("Wanted")
_ROUNDING = 1e-6
"""Tokens that a sum may lack through rounding."""


class Bucket:
    """Tokens of one exchange. The bucket is empty at first, so that a relay that restarts often sends no more than one that keeps running.

    Args:
        rate: messages a second.
        now: monotonic seconds.

    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = 0.0
        self._at = now

    def change(self, rate: float, now: float) -> None:
        """Fill the bucket at another rate from now on."""
        self._tokens, self._at, self._rate = self._level(now), now, rate

    def take(self, messages: int, now: float) -> None:
        """Debit claimed messages; missing tokens become debt, up to `DEBT`."""
        self._tokens, self._at = max(self._level(now) - messages, -max(self._rate * DEBT, 1.0)), now

    def allowance(self, now: float) -> int:
        """Messages that may be claimed; 0 while there are too few tokens for a claim."""
        level = self._level(now) + _ROUNDING
        return math.floor(level) if level >= self._enough else 0

    def until(self, now: float) -> float:
        """Seconds until there are enough tokens for a claim."""
        return max(0.0, (self._enough - self._level(now)) / self._rate)

    def _level(self, now: float) -> float:
        return min(self._tokens + (now - self._at) * self._rate, self._most)

    @property
    def _most(self) -> float:
        return max(self._rate * BURST, 1.0)

    @property
    def _enough(self) -> float:
        return max(self._rate * WORTH_A_CLAIM, 1.0)


class RateLimits:
    """The exchanges that an operator limits.

    Args:
        clock: monotonic seconds.

    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._rates: Mapping[str, float] = {}

    def set(self, figures: Mapping[str, float], relays: int) -> bool:
        """Apply exactly these limits, in messages a second, from now on; this relay's share is 1/`relays`.

        Returns:
            Whether that changes anything.

        """
        if (rates := {exchange: figure / max(relays, 1) for exchange, figure in figures.items()}) == self._rates:
            return False
        now, self._rates = self.clock(), rates
        for exchange in self._buckets.keys() - figures.keys():
            del self._buckets[exchange]
        for exchange, rate in rates.items():
            if exchange in self._buckets:
                self._buckets[exchange].change(rate, now)
            else:
                self._buckets[exchange] = Bucket(rate, now)
        return True

    @property
    def names(self) -> Collection[str]:
        """The limited exchanges."""
        return self._buckets.keys()

    def allowance(self, exchange: str) -> int | None:
        """Messages that may be claimed now, None if the exchange has no limit."""
        bucket = self._buckets.get(exchange)
        return None if bucket is None else bucket.allowance(self.clock())

    def admit(self, wanted: Iterable[Wanted], exchange: Callable[[Wanted], str]) -> list[Wanted]:
        """The messages that may be claimed now; earlier messages get tokens first. `exchange` returns the exchange of a message."""
        left: dict[str, int | None] = {}
        admitted: list[Wanted] = []
        for one in wanted:
            allowance = left.setdefault(name := exchange(one), self.allowance(name))
            if allowance != 0:
                admitted.append(one)
                left[name] = None if allowance is None else allowance - 1
        return admitted

    def took(self, batch: Batch) -> None:
        """Debit claimed messages, whatever their outcome: a message that is sent again is debited again."""
        now = self.clock()
        for exchange in self._buckets.keys() & batch.exchanges.keys():
            self._buckets[exchange].take(batch.exchanges[exchange].messages, now)

    def until(self, exchanges: Collection[str]) -> float | None:
        """Seconds until messages of any of these exchanges may be claimed: 0 if one exchange has no limit; None without exchanges."""
        if not exchanges:
            return None
        now = self.clock()
        return min(bucket.until(now) if (bucket := self._buckets.get(name)) else 0.0 for name in exchanges)
