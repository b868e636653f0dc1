"""Deliveries that wait, unacknowledged, and when they are tried again; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from relay.aio import pause
from relay.errors import StoreError
from relay.inbox.blame import Blame
from relay.inbox.ports import Taken

LONGEST_PAUSE = 5.0
"""Most seconds between two tries of a failing delivery; a round of tries that took long is followed by a longer pause."""
REST = 10
"""Pause after a round, as a multiple of the time spent on deliveries that stay held. New deliveries are received during the pause."""


class Held(NamedTuple):
    """A delivery that waits for another session, such as an open transaction with the same mark, or for a trigger's repair."""

    taken: Taken
    blame: Blame
    """Remembers the earlier failures of this delivery."""
    error: StoreError


class HeldDeliveries:
    """Held deliveries in the order of their next try.

    Args:
        clock: monotonic seconds.

    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: deque[Held] = deque()
        self._round_at = 0.0
        self.rounds = 0
        """Rounds since the first delivery was held."""

    def put(self, held: Held) -> None:
        """Hold a delivery, which is tried after all other held deliveries."""
        self._held.append(held)

    def pop(self) -> Held:
        """Return the next delivery to try, which is then no longer held."""
        return self._held.popleft()

    def end_round(self, wasted: float) -> None:
        """Begin the next round after a pause. `wasted`: the seconds that this round spent on deliveries that stay held."""
        self.rounds = self.rounds + 1 if self._held else 0
        self._round_at = self._clock() + max(pause(self.rounds, longest=LONGEST_PAUSE), REST * wasted)

    @property
    def patience(self) -> float | None:
        """Seconds until the next round; None if nothing is held."""
        return max(0.0, self._round_at - self._clock()) if self._held else None

    @property
    def error(self) -> str:
        """Why the last delivery is held; empty if nothing is held."""
        return str(self._held[-1].error) if self._held else ""

    @property
    def errors(self) -> dict[str, list[StoreError]]:
        """For each queue: why each of its held deliveries is held."""
        found: dict[str, list[StoreError]] = {}
        for held in self._held:
            found.setdefault(held.taken.delivery.queue, []).append(held.error)
        return found

    def __len__(self) -> int:
        """How many deliveries are held."""
        return len(self._held)
