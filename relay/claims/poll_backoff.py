"""When a kind of claim is worth a statement: at once after a claim with messages, and later and later after empty claims. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.message import Batch

FIRST_GAP = 0.01
"""Seconds until an empty source is polled again; this interval doubles up to the poll interval."""

Ask = Callable[[int, int], Awaitable[tuple[Batch | None, bool]]]
"""Claims at most a number of messages and of bytes; returns the batch, and whether the claim stopped before the end."""


@dataclass(slots=True, eq=False)
class PollBackoff:
    """One kind of claim, and when to poll it again."""

    claim: Ask
    look_at: float = 0.0
    gap: float = FIRST_GAP

    def came_up(self, now: float, longest: float, *, again: bool) -> None:
        """Poll again at once if there may be more messages, and later and later while claims are empty."""
        self.look_at = now if again else now + min(self.gap, longest)
        self.gap = FIRST_GAP if again else min(self.gap * 2, longest)

    def hint(self) -> None:
        """There may be messages: poll at once."""
        self.look_at, self.gap = 0.0, FIRST_GAP

    def rests(self, longest: float) -> bool:
        """Whether the source was empty so often that it is now polled at the longest interval."""
        return self.gap >= longest
