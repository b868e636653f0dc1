"""Messages whose lock has expired before: they are claimed alone or in small groups, one group after the other; no I/O.

After its second lost lock a message is claimed alone, so that a message that kills relays affects no other. After the first lost lock the
message was most likely not the cause, so it is claimed in a group (docs/decisions/0004).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from relay.claims.backlog import Backlog
from relay.claims.rate_limits import RateLimits
from relay.message import Batch, Claim
from relay.ports import ScanFinding

MAX_GROUP = 100
"""Messages that may be claimed together after their first lost lock; enough to clear a dead relay's whole window within seconds."""
GROUP_PATIENCE = 1.0
"""Seconds after which the next group is claimed even if a message of the last group, for example of a silent exchange, is not settled."""
ALONE_PATIENCE = 2.0
"""Seconds until the next group follows a message that was claimed alone and is not settled: as the relay still runs, the message has not
killed it."""
FIRST_AGAIN = 2


class Suspects:
    """Suspects that scans have found, and the pace at which they are claimed.

    Args:
        limits: say how many messages of an exchange may be claimed now.
        clock: monotonic seconds.

    """

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.backlog = Backlog(limits)
        self._clock = clock
        self._in_flight: dict[str, str] = {}
        """Exchanges of suspects in flight, by message id."""
        self._last: set[str] = set()
        """Ids of the last group's messages that are still in flight."""
        self._until = 0.0

    def next(self, most: int, paused: Collection[str]) -> list[ScanFinding]:
        """The next group; empty while the last group still has time to settle."""
        if self._last and self._clock() < self._until:
            return []
        # Suspects of an exchange that does not confirm come last: claimed one after the other, they would delay all others.
        return self._group(most, {*paused, *self._in_flight.values()}) or self._group(most, paused)

    def _group(self, most: int, left_out: Collection[str]) -> list[ScanFinding]:
        together = self.backlog.next(min(most, MAX_GROUP), left_out, wanted=lambda one: one.trusted)
        return together or self.backlog.next(1, left_out)

    def took(self, batch: Batch) -> None:
        """A group, or a part of it, was claimed."""
        self._in_flight.update((claim.id, claim.exchange) for claim in batch.claims)
        self._last = {claim.id for claim in batch.claims}
        # The current claim counts, so after a first lost lock the message has two attempts.
        alone = batch.claims[0].attempts > FIRST_AGAIN
        self._until = self._clock() + (ALONE_PATIENCE if alone else GROUP_PATIENCE)

    def settled(self, claims: Collection[Claim]) -> bool:
        """Note settled messages; return whether suspects were among them."""
        if not self._in_flight or self._in_flight.keys().isdisjoint(claim.id for claim in claims):
            return False
        for claim in claims:
            self._in_flight.pop(claim.id, None)
            self._last.discard(claim.id)
        return True

    def clear(self) -> None:
        """Forget all: the connection is new."""
        self.backlog.clear()
        self._in_flight.clear()
        self._last.clear()
