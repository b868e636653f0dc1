"""Whether a write fails because of the deliveries in it, or because of the database. No I/O of its own."""

from __future__ import annotations

import time
from typing import Final

from relay.errors import StoreError
from relay.inbox.delivery import Problem
from relay.inbox.ports import InboxStore

REFUSALS: Final = 3
"""Attempts before a refused delivery is rejected, where the cause may lie outside of it, such as in a trigger."""
SILENCES: Final = 3
"""Writes of a delivery alone that PostgreSQL does not end, while it takes others, before it is rejected."""
LOST_SECONDS: Final = 15.0
"""How long a lock may be one of a lost statement of our own: PostgreSQL looks every 10 seconds whether its client is there."""


class Blame:
    """Judges the failed attempts of one write.

    Args:
        inbox: is asked whether it takes another message, where a write went unanswered or waited for a lock.
        rejects: a delivery that causes the failure is rejected. A single failure is not enough where the cause may lie elsewhere.
        lost_at: when a statement that wrote these deliveries was lost, which may still be at work; monotonic seconds.

    """

    def __init__(self, inbox: InboxStore, *, rejects: bool, lost_at: float | None = None) -> None:
        self._inbox = inbox
        self._rejects = rejects
        self.lost_at = lost_at
        self._refusals = 0
        self._silences = 0

    async def is_theirs(self, error: StoreError) -> bool:
        """Whether the deliveries cause this failure: without them, or in smaller parts, others get through."""
        if error.row_is_guilty or error.broken_trigger:
            return True
        if error.refused:
            self._refusals += 1
            return not self._rejects or self._refusals > REFUSALS
        if not error.in_passing:
            self.lost_at = time.monotonic()
        # A server that is slow, locked or away takes no other message either, and is waited for.
        if not (error.unanswered or error.in_passing) or not await self._inbox.takes_others():
            return False
        if error.in_passing:
            return self.lost_at is None or time.monotonic() - self.lost_at > LOST_SECONDS
        self._silences += 1
        return not self._rejects or self._silences >= SILENCES


def problem_of(error: StoreError) -> Problem | None:
    """Why a delivery that caused this error is rejected; None for one that waits for a lock, or for a trigger's repair."""
    if error.in_passing or error.broken_trigger:
        return None
    if not error.unanswered:
        return Problem("row_refused", str(error))
    return Problem(
        "write_unanswered",
        f"PostgreSQL never finished writing it, {SILENCES} times, and takes other messages: see what the inbox's triggers do with it.",
    )
