"""When a kind of claim is worth a statement: at once after a find, seldom after none. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.message import Batch

FIRST_GAP = 0.01
"""Seconds until a source that came up empty is looked at again; doubles up to the poll interval."""

Ask = Callable[[int, int], Awaitable[Batch | None]]


def never() -> bool:
    """A source that comes to its end with each look."""
    return False


@dataclass(slots=True, eq=False)
class Source:
    """One kind of claim and when to look at it again."""

    name: str
    claim: Ask
    goes_on: Callable[[], bool] = never
    """True while its last look was cut short: look again at once."""
    look_at: float = 0.0
    gap: float = FIRST_GAP

    def came_up(self, batch: Batch | None, now: float, longest: float) -> None:
        """Look again at once after a find, later and later after none."""
        if batch or not self.goes_on():
            self.look_at = now if batch else now + min(self.gap, longest)
            self.gap = FIRST_GAP if batch else min(self.gap * 2, longest)

    def hint(self) -> None:
        """Something may be there: look at once."""
        self.look_at, self.gap = 0.0, FIRST_GAP

    def rests(self, longest: float) -> bool:
        """It came up empty so often that it waits as long as it ever does."""
        return self.gap >= longest
