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
"""Seconds at most between two tries of what fails; a round of tries that took long is followed by a longer pause."""
REST = 10
"""Pause after a round, as a multiple of the time spent on deliveries that stay held: new deliveries have the rest of the time."""


class Held(NamedTuple):
    """A delivery that waits for another session, such as an open transaction that has marked it, or for a trigger's repair."""

    taken: Taken
    blame: Blame
    """Remembers its earlier failures."""
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
        """Hold a delivery; it is tried after all others."""
        self._held.append(held)

    def pop(self) -> Held:
        """The next to try; it is held no longer."""
        return self._held.popleft()

    def end_round(self, wasted: float) -> None:
        """Begin the next round after a pause; `wasted` are the seconds that this one spent on deliveries that stay held."""
        self.rounds = self.rounds + 1 if self._held else 0
        self._round_at = self._clock() + max(pause(self.rounds, longest=LONGEST_PAUSE), REST * wasted)

    @property
    def patience(self) -> float | None:
        """Seconds until the next round; None if nothing is held."""
        return max(0.0, self._round_at - self._clock()) if self._held else None

    @property
    def error(self) -> str:
        """Why the last one is held; empty if nothing is held."""
        return str(self._held[-1].error) if self._held else ""

    @property
    def errors(self) -> dict[str, list[StoreError]]:
        """By queue: why each of its deliveries is held."""
        found: dict[str, list[StoreError]] = {}
        for held in self._held:
            found.setdefault(held.taken.delivery.queue, []).append(held.error)
        return found

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)
