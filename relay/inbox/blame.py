"""Finds out whether a write fails because of its deliveries or because of the database. No I/O of its own."""

from __future__ import annotations

import time
from typing import Final

from relay.errors import StoreError
from relay.inbox.delivery import Problem
from relay.inbox.ports import InboxStore

REFUSALS: Final = 3
"""Attempts before a refused delivery is rejected, if the cause may lie elsewhere, such as in a trigger."""
SILENCES: Final = 3
"""Unanswered writes of a single delivery after which it is rejected, if PostgreSQL accepts other messages meanwhile."""
LOST_SECONDS: Final = 15.0
"""Seconds for which a lock may belong to our own lost statement: PostgreSQL checks only every 10 seconds whether its client exists."""


class Blame:
    """Judges the failed attempts of one write.

    Args:
        inbox: accepts or refuses a test message, after a write that got no answer or waited for a lock.
        rejects: whether a delivery that causes the failure is rejected. If the cause may lie elsewhere, one failure is not enough for that.
        lost_at: monotonic seconds when a statement that wrote these deliveries was lost; it may still be running.

    """

    def __init__(self, inbox: InboxStore, *, rejects: bool, lost_at: float | None = None) -> None:
        self._inbox = inbox
        self._rejects = rejects
        self.lost_at = lost_at
        self._refusals = 0
        self._silences = 0

    async def is_theirs(self, error: StoreError) -> bool:
        """Whether the deliveries cause this failure, so that a write without them, or of a smaller part, would succeed."""
        if error.row_is_guilty or error.broken_trigger:
            return True
        if error.refused:
            self._refusals += 1
            return not self._rejects or self._refusals > REFUSALS
        if not error.in_passing:
            self.lost_at = time.monotonic()
        # A server that is slow, locked or unavailable accepts no other message either: wait for the server.
        if not (error.unanswered or error.in_passing) or not await self._inbox.takes_others():
            return False
        if error.in_passing:
            return self.lost_at is None or time.monotonic() - self.lost_at > LOST_SECONDS
        self._silences += 1
        return not self._rejects or self._silences >= SILENCES


def problem_of(error: StoreError) -> Problem | None:
    """Why a delivery that caused this error is rejected; None if it must wait for a lock, or for the repair of a trigger."""
    if error.in_passing or error.broken_trigger:
        return None
    if not error.unanswered:
        return Problem("row_refused", str(error))
    return Problem(
        "write_unanswered",
        f"PostgreSQL never finished writing it, {SILENCES} times, and takes other messages: see what the inbox's triggers do with it.",
    )
