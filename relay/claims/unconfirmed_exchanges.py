"""Strangers: exchanges from which no confirm has come yet, and how many of their messages may be in flight; no I/O.

The relay probes each stranger at the broker, about a thousand a second, and the broker closes a channel for each missing exchange. If many
strangers have messages, these would fill the window, and all other messages would wait behind them. So strangers get a small part of the
window, and messages of known exchanges are claimed past them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from operator import itemgetter

from relay.message import CONFIRMED, Batch, Claim, Portion, Verdict

CROWD = 50
"""More strangers than this in one full claim are a crowd; fewer strangers are not held back."""
PART = 8
"""During a crowd, messages of strangers may take 1/PART of the window."""
PORTION = 4
"""One claim locks at most 1/PORTION of the messages that a crowd's strangers may have in flight."""
MOST_KNOWN = 1000
"""Most known exchanges that are remembered: those with the most recent confirms."""
_exchange = itemgetter(Claim._fields.index("exchange"))


class UnconfirmedExchanges:
    """Distinguishes strangers from exchanges that have confirmed messages.

    Args:
        window: messages that may be in flight.
        in_flight: messages in flight, by exchange.
        clock: monotonic seconds.

    """

    def __init__(self, *, window: int, in_flight: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._most = max(window // PART, 1)
        self._portion = max(self._most // PORTION, 1)
        self._in_flight = in_flight
        self._known: OrderedDict[str, None] = OrderedDict()

    @property
    def known(self) -> list[str]:
        """Exchanges that are not strangers."""
        return list(self._known)

    def learn(self, portion: Portion) -> None:
        """Learn from the broker's results; passes in C handle the common case that all are confirmed."""
        if portion.results.count(CONFIRMED) == len(portion.results):
            taken, refused = set(map(_exchange, portion.claims)), set[str]()
        else:
            pairs = list(zip(portion.claims, portion.results, strict=True))
            taken = {claim.exchange for claim, result in pairs if result.verdict is Verdict.CONFIRMED}
            refused = {claim.exchange for claim, result in pairs if result.of_exchange}
        for exchange in refused:
            self._known.pop(exchange, None)
        for exchange in taken:
            self._known[exchange] = None
            self._known.move_to_end(exchange)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def crowd(self, batch: Batch) -> bool:
        """Whether a full claim shows that there are many strangers."""
        return len(batch.exchanges.keys() - self._known.keys()) > CROWD

    def room(self, room: int, *, reserved: bool = False) -> int:
        """Messages of strangers that may be claimed if the window has this room; 0 means to wait for a settle.

        A claim with `reserved` has extra room, which other claims do not get.
        """
        most = self._most + reserved * self._portion
        left = most - sum(count for exchange, count in self._in_flight().items() if exchange not in self._known)
        return min(self._portion, room) if left >= self._portion else 0

    def __contains__(self, exchange: object) -> bool:
        """Whether an exchange is a stranger."""
        return exchange not in self._known
