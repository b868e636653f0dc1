"""Whether a write fails because of the deliveries in it, or because of the database. No I/O of its own."""

from __future__ import annotations

from typing import Final

from relay.errors import StoreError
from relay.inbox.delivery import Problem
from relay.inbox.ports import InboxStore

REFUSALS: Final = 3
"""Attempts before a refused delivery is rejected, where the cause may lie outside of it, such as in a trigger."""
SILENCES: Final = 3
"""Writes of a delivery alone that PostgreSQL does not end, while it takes others, before it is rejected."""
LOCKS: Final = 10
"""Failures, in some 10 seconds, for a lock that a lost statement of our own may hold; PostgreSQL has ended that one by then."""


class Blame:
    """Judges the failed attempts of one write.

    Args:
        inbox: is asked whether it takes another message, where a write went unanswered or waited for a lock.
        rejects: a delivery that is to blame is rejected; for that a single failure does not suffice, where the cause may lie outside.
        lost: a statement that wrote these deliveries was lost, and may still be at work.

    """

    def __init__(self, inbox: InboxStore, *, rejects: bool, lost: bool = False) -> None:
        self._inbox = inbox
        self._rejects = rejects
        self.lost = lost
        self._locks = 0
        self._refusals = 0
        self._silences = 0

    async def is_theirs(self, error: StoreError) -> bool:
        """Whether the deliveries are to blame for this failure: without them, or in smaller parts, others get through."""
        if error.row_is_guilty or error.broken_trigger:
            return True
        if error.refused:
            self._refusals += 1
            return not self._rejects or self._refusals > REFUSALS
        self.lost = self.lost or not error.in_passing
        # A server that is slow, locked or away takes no other message either, and is waited for.
        if not (error.unanswered or error.in_passing) or not await self._inbox.takes_others():
            return False
        self._silences += error.unanswered
        self._locks = self._locks + 1 if error.in_passing else 0
        if error.in_passing:
            return not self.lost or self._locks >= LOCKS
        return not self._rejects or self._silences >= SILENCES


def problem_of(error: StoreError) -> Problem | None:
    """Why a delivery is rejected that is to blame for this error; None for one that waits for a lock, or for a trigger's repair."""
    if error.in_passing or error.broken_trigger:
        return None
    if not error.unanswered:
        return Problem("row_refused", str(error))
    return Problem(
        "write_unanswered",
        f"PostgreSQL did not come to an end with it, {SILENCES} times, and takes others: see what the inbox's triggers do with it.",
    )
