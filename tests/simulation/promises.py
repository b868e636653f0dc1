"""What was promised about time, looked at in every step: that nothing stays where it is although somebody could move it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relay.app import SILENCE
from tests.simulation.database import BAD, EPOCH, LIMITED, Database, Row
from tests.simulation.hearing import Hearing
from tests.simulation.ledger import BrokenError
from tests.simulation.relay import SimulatedRelay

HEARD = 0.3
"""Seconds in which a message is claimed while a relay holds the gate."""
SWEPT = 5.0
"""Seconds after its lock has expired in which a message is free again, while some relay is well."""
SILENCE_SWEPT = SILENCE + 3.0
"""Seconds after the last heartbeat of who holds it, where that stands still or is gone."""


class Promises:
    """Of what is in the queue now.

    Args:
        database: the queue.
        relays: those that run or stand still.

    """

    def __init__(self, database: Database, relays: Callable[[], Iterable[SimulatedRelay]]) -> None:
        self._database = database
        self._relays = relays
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
        now = self._database.now()
        expired = now - SWEPT
        for row in self._database.locks.values():
            if row.lock_expires_at is not None and row.lock_expires_at < expired and self._somebody_sweeps(row):
                raise BrokenError(f"{row} is locked long after that, and nobody frees it.")
        if self.patience is not None:
            self._check_good(now - self.patience)
        if self.hearing is not None and self.hearing.holder is not None:
            self._check_heard(self.hearing, now - HEARD)

    def _somebody_sweeps(self, row: Row) -> bool:
        """A relay has been well since the lock expired, and has claimed as far as that before: whose it is, as long as that is heard of."""
        assert row.lock_expires_at is not None
        relays = list(self._relays())
        own = [relay for relay in relays if relay.id == row.locked_by and not relay.process.stopped]
        holder = self._database.relays.get(row.locked_by or 0)
        if not own and holder is not None and holder.heartbeat_at + SILENCE_SWEPT > self._database.now():
            return False
        return any(self._is_well(relay, row.lock_expires_at) and row.at[0] <= relay.top(SWEPT).xid for relay in own or relays)

    def _is_well(self, relay: SimulatedRelay, since: float) -> bool:
        """Nothing has happened to it."""
        return not relay.process.stopped and relay.stopping_at is None and EPOCH + relay.upset_at < since

    def _check_good(self, before: float) -> None:
        """P5: a bad message keeps nobody but those that stand behind it under its key."""
        database = self._database
        for row in database.rows.values():
            if row.since < before and (row.available_at or 0.0) < before and self._is_good(row):
                raise BrokenError(f"{row} is still there, {database.now() - row.since:.1f} s after it could have gone.")

    def _check_heard(self, hearing: Hearing, before: float) -> None:
        """While a relay holds the gate, what was committed before and since is claimed at once, but where a notification was lost.

        Of what was committed before nobody was told: ordered messages wait until the owner of their lane looks by itself.
        """
        held, lost = EPOCH + hearing.held_since, EPOCH + hearing.lost_at
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
