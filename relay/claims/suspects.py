"""Messages whose lock has expired before: claimed alone or in small groups, one group after the other; no I/O.

After its second lost lock a message is claimed alone, so that one which kills relays takes no neighbour with it; after the first, when it
was most likely a bystander, in groups (docs/decisions/0004).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from itertools import islice

from relay.claims.limits import Limits
from relay.message import Batch, Claim, Position
from relay.ports import Finding

MAX_GROUP = 100
"""Messages that may go together after their first lost lock; enough to clear a dead relay's whole window within seconds."""
MAX_FOUND = 10_000
"""Suspects of one exchange that are remembered; the next round of the scrub finds the others."""
MAX_IN_ALL = 50_000
"""Suspects that are remembered."""
GROUP_PATIENCE = 1.0
"""Seconds after which the next group goes although one of the last is not through, such as one that a silent queue keeps."""
ALONE_PATIENCE = 2.0
"""Seconds after which others follow one that goes alone and is not through; had it killed the relay, nobody would be here to wait."""
FIRST_AGAIN = 2


class Suspects:
    """Those that scans have found, and those in flight.

    Args:
        limits: say how many messages of an exchange may be claimed now.
        clock: monotonic seconds.

    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._found: dict[Position, Finding] = {}
        self._counts: Counter[str] = Counter()
        """How many of each exchange."""
        self._in_flight: dict[str, str] = {}
        """Exchanges of suspects in flight, by message id."""
        self._last: set[str] = set()
        """Those of the last group that are in flight: earlier ones have had their time."""
        self._until = 0.0

    def put(self, finding: Finding) -> None:
        """Remember one, if there is room."""
        if self._counts[finding.exchange] < MAX_FOUND and len(self._found) < MAX_IN_ALL and finding.position not in self._found:
            self._found[finding.position] = finding
            self._counts[finding.exchange] += 1

    def next(self, most: int, held: Collection[str]) -> list[Finding]:
        """The next group, none while the last one has its time; they stay until they are dropped."""
        if self._last and self._clock() < self._until:
            return []
        # Those of an exchange that does not confirm come last: one after the other they would keep all others.
        slow = {*self._in_flight.values()}
        open_ = [one for one in self._found.values() if one.exchange not in held and self._limits.allowance(one.exchange) != 0]
        return self._group(open_, most, slow) or self._group(open_, most, ())

    def _group(self, found: Collection[Finding], most: int, left_out: Collection[str]) -> list[Finding]:
        mine = [one for one in found if one.exchange not in left_out]
        trusted = list(islice((one for one in mine if one.trusted), min(most, MAX_GROUP)))
        return self._limits.admit(trusted, lambda one: one.exchange) or mine[:1]

    def tried(self, group: Collection[Finding], batch: Batch | None) -> None:
        """A group was claimed, all of it, a part or nothing: what is left a scan finds again."""
        for one in group:
            if self._found.pop(one.position, None):
                self._counts[one.exchange] -= 1
        self._counts += Counter()  # forgets those that have none
        if batch:
            self._in_flight.update((claim.id, claim.exchange) for claim in batch.claims)
            self._last = {claim.id for claim in batch.claims}
            # The claim counts, so a first lost lock makes two attempts.
            alone = batch.claims[0].attempts > FIRST_AGAIN
            self._until = self._clock() + (ALONE_PATIENCE if alone else GROUP_PATIENCE)

    def settled(self, claims: Collection[Claim]) -> bool:
        """Learn what is through; return whether suspects were among it."""
        if not self._in_flight or self._in_flight.keys().isdisjoint(claim.id for claim in claims):
            return False
        for claim in claims:
            self._in_flight.pop(claim.id, None)
            self._last.discard(claim.id)
        return True

    def forget(self, exchanges: Collection[str]) -> None:
        """Remember nothing of these any more."""
        self._found = {position: one for position, one in self._found.items() if one.exchange not in exchanges}
        self._counts = Counter(one.exchange for one in self._found.values())

    def clear(self) -> None:
        """Remember nothing at all."""
        self._found.clear()
        self._counts.clear()
        self._in_flight.clear()
        self._last.clear()

    @property
    def waiting(self) -> bool:
        """Some are known that are not in flight."""
        return bool(self._found)
