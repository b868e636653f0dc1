"""What was promised about time, looked at in every step: that nothing stays where it is although somebody could move it."""

from __future__ import annotations

import math

from relay.claims.scrub import WHOLE
from tests.simulation.database import BAD, LIMITED, OVERLAP, Database, Row
from tests.simulation.hearing import Hearing
from tests.simulation.ledger import BrokenError
from tests.simulation.liveness import FOUND

HEARD = 0.3
"""Seconds in which a message is claimed while a relay holds the gate."""


class Promises:
    """Of what is in the queue now.

    Args:
        database: the queue.

    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.patience: float | None = None
        """Seconds in which whatever is good goes out, where nothing else happens that could delay it; else None."""
        self.flooding: str | None = None
        """The exchange that may wait for others, and not they for it."""
        self.hearing: Hearing | None = None
        """Where who sleeps must be woken, if that is looked at."""
        self.limits = False
        """Some of it may have to wait for a limit."""

    def check(self) -> None:
        """Look at every message that may have stayed too long.

        Raises:
            BrokenError: one has stayed too long.
        """
        if self.patience is not None:
            self._check_good(self.patience)
        if self.hearing is not None and self.hearing.holder is not None:
            self._check_heard(self.hearing, self._database.moment() - HEARD)

    def _check_good(self, patience: float) -> None:
        """P5: a bad message holds up only the messages behind it under its key."""
        database = self._database
        now, clock = database.moment(), database.now() - database.moment()
        for row in database.rows.values():
            due = -math.inf if row.available_at is None else row.available_at - clock
            # What committed long after its wait was over only a round of the scrub finds.
            longest = patience + FOUND + WHOLE if math.isfinite(due) and row.since > due + OVERLAP else patience
            if max(row.since, due) < now - longest and self._is_good(row):
                raise BrokenError(f"{row} is still there, {now - max(row.since, due):.1f} s after it could have gone.")

    def _check_heard(self, hearing: Hearing, before: float) -> None:
        """While a relay holds the gate, what was committed before and since is claimed at once, unless a notification was lost.

        No notification reported what was committed before: ordered messages wait until the owner of their lane looks by itself.
        """
        held, lost = hearing.held_since, hearing.lost_at
        for row in self._database.rows.values() if held < before else ():
            told = row.key is None or row.since > held
            if lost < row.since < before and told and row.ready and self._is_good(row):
                raise BrokenError(
                    f"{row} is still there, {before + HEARD - row.since:.1f} s after it was committed: a relay sleeps past it."
                )

    def _is_good(self, row: Row) -> bool:
        database = self._database
        if self.limits and row.exchange in LIMITED:
            return False
        if row.exchange == BAD or row.routing_key != "new" or row.id in database.odd or row.exchange in {*database.paused, self.flooding}:
            return False
        return row.key is None or self._may_go(row, row.key)

    def _may_go(self, row: Row, key: str) -> bool:
        """The head of a key, while nothing of it is in flight: one that commits late waits for what has overtaken it."""
        database = self._database
        if database.head_of(key) is not row or key in database.parked:
            return False
        return not any(database.rows[at].lock_expires_at for at in database.by_key[key][1:])
