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


class Blame:
    """Judges the failed attempts of one write.

    Args:
        inbox: is asked whether it takes another message, where a write went unanswered.
        alone: the write has one delivery.

    """

    def __init__(self, inbox: InboxStore, *, alone: bool) -> None:
        self._inbox = inbox
        self._alone = alone
        self._silences = 0

    async def is_theirs(self, error: StoreError, attempt: int) -> bool:
        """Whether the deliveries are to blame: without them, or in smaller parts, others get through.

        Args:
            error: of this attempt.
            attempt: how many failed before.
        """
        if not error.unanswered:
            return error.row_is_guilty or (error.refused and (not self._alone or attempt >= REFUSALS))
        # A server that is slow or away takes no other message either, and is waited for.
        if not await self._inbox.takes_others():
            return False
        self._silences += 1
        return not self._alone or self._silences >= SILENCES


def problem_of(error: StoreError) -> Problem:
    """Why a delivery is rejected that is to blame for this error."""
    if not error.unanswered:
        return Problem("row_refused", str(error))
    return Problem(
        "write_unanswered",
        f"PostgreSQL did not come to an end with it, {SILENCES} times, and takes others: see what the inbox's triggers do with it.",
    )
