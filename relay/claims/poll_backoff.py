"""When a kind of claim is worth a statement: at once after a find, seldom after none. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.message import Batch

FIRST_GAP = 0.01
"""Seconds until a source that had nothing is looked at again; doubles up to the poll interval."""

Ask = Callable[[int, int], Awaitable[tuple[Batch | None, bool]]]
"""Claims up to so many messages and bytes; returns what it found, and whether it stopped before the end."""


@dataclass(slots=True, eq=False)
class PollBackoff:
    """One kind of claim and when to look at it again."""

    claim: Ask
    look_at: float = 0.0
    gap: float = FIRST_GAP

    def came_up(self, now: float, longest: float, *, again: bool) -> None:
        """Look again at once where there may be more, and later and later where there is nothing."""
        self.look_at = now if again else now + min(self.gap, longest)
        self.gap = FIRST_GAP if again else min(self.gap * 2, longest)

    def hint(self) -> None:
        """Something may be there: look at once."""
        self.look_at, self.gap = 0.0, FIRST_GAP

    def rests(self, longest: float) -> bool:
        """It had nothing so often that it waits for the longest time."""
        return self.gap >= longest
