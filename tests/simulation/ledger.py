"""What was promised, checked at every change: the ledger of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.clock import Process
from tests.simulation.database import GOOD, Database, Row
from tests.simulation.rates import Rates


class BrokenError(AssertionError):
    """A promise was broken."""


class Counts(NamedTuple):
    """What a run came to."""

    committed: int
    rolled_back: int
    delivered: int
    duplicates: int
    archived: int
    expired: int


class Ledger:
    """Hears of every change in the database and at the broker, before it is made.

    Args:
        excused: says whether the lock of this message may have expired: something went wrong around it.

    """

    def __init__(self, excused: Callable[[Row], bool]) -> None:
        self.database: Database
        self.rates = Rates(lambda: self.database.moment())  # noqa: PLW0108 - the database comes later
        self._excused = excused
        self._rows: dict[str, Row] = {}
        self.rolled_back: dict[str, None] = {}
        self.delivered_times: Counter[str] = Counter()
        self.claims: Counter[str] = Counter()
        """Claims by exchange."""
        self._acknowledged: dict[str, None] = {}
        self._allowed: Counter[str] = Counter()
        self._expired = 0
        self.deadly_only = False
        """Nothing ends a relay but messages that do so themselves."""

    @property
    def counts(self) -> Counts:
        """So far."""
        times = self.delivered_times
        return Counts(
            len(self._rows), len(self.rolled_back), len(times), times.total() - len(times), len(self.database.archive), self._expired
        )

    def committed(self, row: Row) -> None:
        """P1 begins."""
        self._rows[row.id] = row

    def locked(self, row: Row, relay: int) -> None:
        """One valid token at a time, and of a key its head only, by the owner of its lane."""
        self.claims[row.exchange] += 1
        if row.lock_expires_at is not None and row.lock_expires_at > self.database.now():
            raise BrokenError(f"{row.id} was locked while relay {row.locked_by} still held it.")
        if row.at[0] >= self.database.xmax:
            raise BrokenError(f"{row.id} was locked under the id of another cluster's transaction.")
        if row.lane is not None and self.database.lanes[row.lane].owner != relay:
            raise BrokenError(f"{row.id} was locked by relay {relay}, which does not own the lane of {row.key}.")
        if row.key in self.database.parked:
            # Parked between the look for heads and the claim: the next one waits.
            return
        if (earlier := self._earlier(row)) is not None:
            raise BrokenError(f"{row.id} was locked before {earlier.id}, which stands before it under {row.key}.")

    def fenced(self, row: Row, token: object) -> None:
        """No write by a stale token changes anything."""
        if row.lock_token != token or self.database.rows.get(row.at) is not row:
            raise BrokenError(f"{row.id} was changed under the token {token} although {row.lock_token} holds it.")

    def expired(self, row: Row) -> None:
        """Only a fault lets a lock expire; then the message may go out once more."""
        self._expired += 1
        if not self._excused(row):
            raise BrokenError(f"The lock of {row.id} expired although nothing had happened to relay {row.locked_by}.")
        self.unheard(row.id)

    def archived(self, row: Row, result: str) -> None:
        """Success means that the broker acknowledged that very message."""
        if row.id in self.database.archive:
            raise BrokenError(f"{row.id} was archived twice.")
        if result == "lock_expired" and self.deadly_only and row.exchange in GOOD and row.routing_key == "new":
            raise BrokenError(f"{row} was given up although it has ended nobody.")
        if result == "success" and row.id not in self._acknowledged:
            raise BrokenError(f"{row.id} was archived as a success, and the broker never acknowledged it.")

    def written(self, id_: str, process: Process | None, at: float) -> None:
        """Once a message's lock was taken off, only a process whose clock was stopped meanwhile may still write it."""
        row = self._rows.get(id_)
        if row is None or process is None or process.ahead < 0 or not 0 < row.free_at < at:
            return
        if row.lock_token is None or row.locked_by != process.number():
            raise BrokenError(f"{row} was written by relay {process.number()}, which had lost its lock before.")

    def delivered(self, id_: str) -> None:
        """Of what was committed, in order per key, and twice only after a fault."""
        row = self._rows.get(id_)
        if row is None:
            raise BrokenError(f"{id_} was delivered and never committed.")
        self.delivered_times[id_] += 1
        if not self.rates.delivered(row.exchange):
            raise BrokenError(f"{id_} was delivered beyond the limit of {row.exchange}.")
        if self.delivered_times[id_] > 1 + self._allowed[id_]:
            raise BrokenError(f"{id_} was delivered {self.delivered_times[id_]} times and {self._allowed[id_]} faults allow for it.")
        if self.delivered_times[id_] == 1 and (earlier := self._earlier(row)) is not None and not self.delivered_times[earlier.id]:
            raise BrokenError(f"{id_} was delivered before {earlier.id}, which stands before it under {row.key}.")

    def acknowledged(self, id_: str) -> None:
        """The broker sent an ack for it."""
        self._acknowledged[id_] = None

    def unheard(self, id_: str) -> None:
        """A fault after which the message may go out once more."""
        self._allowed[id_] += 1

    def check(self) -> None:
        """P1 and P2 by their counts: cheap enough for every step."""
        database = self.database
        if len(database.rows) + len(database.archive) != len(self._rows):
            raise BrokenError(f"{len(self._rows)} committed, {len(database.rows)} queued and {len(database.archive)} archived.")

    def check_each(self) -> None:
        """P1 and P2 message by message."""
        queued = {row.id for row in self.database.rows.values()}
        for id_ in self._rows:
            if (id_ in queued) == (id_ in self.database.archive):
                raise BrokenError(f"{id_} is not in exactly one of queue and archive.")
        for id_ in self.rolled_back:
            if id_ in queued or id_ in self.database.archive or self.delivered_times[id_]:
                raise BrokenError(f"{id_} was rolled back and is there.")

    def _earlier(self, row: Row) -> Row | None:
        """A message of the same key that is before it and was there no later."""
        if row.key is None:
            return None
        for at in self.database.by_key.get(row.key, ()):
            if at >= row.at:
                return None
            if self.database.rows[at].visible <= row.visible:
                return self.database.rows[at]
        return None
