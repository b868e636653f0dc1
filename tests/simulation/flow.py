"""That a limited exchange moves: at least at one relay's part of its rate, while something of it could be claimed."""

from __future__ import annotations

from collections.abc import Mapping

from relay.claims.rate_limits import DEBT
from tests.simulation.database import Database
from tests.simulation.ledger import BrokenError

SHARE = 0.5
"""Of one relay's part, the share that must be used: relays rest between two looks."""
TOKENS = 4
"""Messages' worth of a part that may be owed, or be too few for a claim, where the limit is low."""


class Flow:
    """Counts what limited exchanges owe.

    Args:
        database: the queue.
        claims: how many messages were ever claimed, by exchange.

    """

    def __init__(self, database: Database, claims: Mapping[str, int]) -> None:
        self._database = database
        self._claims = claims
        self._owed: dict[str, float] = {}
        """Messages that should have gone, by exchange, while some could."""
        self._went: dict[str, int] = {}
        self._looked_at = 0.0

    def check(self, waiting: Mapping[str, float], relays: int) -> None:
        """Look at what went since the last look.

        Args:
            waiting: the seconds in which one of its messages is found, by limited exchange of which some can be claimed.
            relays: share each limit.

        Raises:
            BrokenError: fewer have gone than the limit allows.
        """
        now, rates = self._database.moment(), self._database.limited
        passed, self._looked_at = now - self._looked_at, now
        for exchange in self._owed.keys() - waiting.keys():
            del self._owed[exchange]
        for exchange, found in waiting.items():
            part = SHARE * rates[exchange] / max(relays, 1)
            went = self._claims.get(exchange, 0)
            # What goes beyond the part makes up for no later rest.
            owed = max(self._owed.get(exchange, 0.0) + part * passed - (went - self._went.get(exchange, went)), 0.0)
            self._owed[exchange], self._went[exchange] = owed, went
            if owed > part * (DEBT + found) + SHARE * TOKENS:
                raise BrokenError(f"Of {exchange} {owed:.1f} messages stay although its limit of {rates[exchange]} a second lets them go.")
