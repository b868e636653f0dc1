"""What applications and operators do to a world's queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from tests.simulation.clock import SimulatedLoop
from tests.simulation.database import GOOD, KEYS, LAST, Database, Row, Transaction
from tests.simulation.hearing import Hearing
from tests.simulation.ledger import Ledger
from tests.simulation.relay import SETTINGS, SimulatedRelay
from tests.simulation.server import Server
from tests.simulation.sweeps import renumber, skip_key, sweep_minute, wake_key

FAR = 10**6
"""Transactions by which another cluster is ahead."""
LOWER = 500
"""The lowest id of one that is behind."""
OTHER = 900
"""A relay of another cluster."""


class People:
    """Their part of a world."""

    chance: Random
    loop: SimulatedLoop
    database: Database
    ledger: Ledger
    server: Server
    hearing: Hearing
    relays: list[SimulatedRelay]
    _messages = 0

    def __init__(self) -> None:
        self.writers: list[Transaction] = []
        self.latest = 0.0
        """Seconds by which the server's clock was ahead at the most."""

    @property
    def living(self) -> list[SimulatedRelay]:
        """Relays that run or stand still."""
        return [relay for relay in self.relays if relay.alive]

    def begin(self) -> None:
        """A writer begins."""
        self.writers.append(self.database.begin())

    def insert(
        self,
        exchange: str,
        key: str | None = None,
        *,
        wait: float = 0.0,
        expires: float = 0.0,
        key_of: str = "new",
        refused: bool = False,
    ) -> None:
        """A message, in the last transaction that is open or in one of its own; the archive may refuse its values for now."""
        now = self.database.now()
        row = self._message(exchange, key, key_of)
        row.available_at = now + wait if wait else None
        row.expires_at = now + expires if expires else None
        if refused:
            self.database.refused[row.id] = self.database.odd[row.id] = None
        tx = self.writers[-1] if self.writers else self.database.begin()
        tx.insert(row)
        self.hearing.inserted(tx)
        if not self.writers:
            self._commit(tx)

    def _message(self, exchange: str, key: str | None, routing_key: str = "new") -> Row:
        self._messages += 1
        return Row(f"{self._messages:08x}-0000-7000-8000-000000000000", exchange, routing_key, key)

    def flood(self, exchange: str, messages: int) -> None:
        """Many messages of one exchange at once."""
        self.begin()
        for _ in range(messages):
            self.insert(exchange)
        self.commit(-1)

    def commit(self, which: int) -> None:
        """One of the writers commits, not the first one to have begun."""
        if self.writers:
            self._commit(self.writers.pop(which % len(self.writers)))

    def roll_back(self, which: int) -> None:
        """One of the writers rolls back."""
        if self.writers:
            self._undo(self.writers[which % len(self.writers)], 0)
            writer = self.writers.pop(which % len(self.writers))
            writer.rollback()
            self.hearing.ended(writer, committed=False)

    def roll_back_to_savepoint(self, which: int) -> None:
        """One of the writers takes its last messages back and continues."""
        if self.writers:
            writer = self.writers[which % len(self.writers)]
            self._undo(writer, self.chance.randrange(len(writer.rows) + 1))

    def pause(self, exchange: str, paused: bool) -> None:
        """An operator holds an exchange, or lets it go."""
        self.database.paused.pop(exchange, None)
        self.database.decided_at[exchange] = self.database.moment()
        if paused:
            self.database.paused[exchange] = None

    def limit(self, exchange: str, per_second: float | None) -> None:
        """An operator limits an exchange, or lifts its limit."""
        self.database.limited.pop(exchange, None)
        self.database.decided_at[exchange] = self.database.moment()
        self.ledger.rates.decide(exchange, per_second)
        if per_second is not None:
            self.database.limited[exchange] = per_second

    def park(self, key: str, parked: bool) -> None:
        """An operator parks a key, or resumes it."""
        self.database.parked.pop(key, None)
        if parked:
            self.database.parked[key] = None
            return
        if (head := self.database.head_of(key)) is not None:
            head.since = self.database.moment()
        self._at_once(lambda tx: wake_key(self.database, tx, key))

    def skip(self, key: str) -> None:
        """An operator skips a key's head."""
        head = self.database.head_of(key)
        if head is None or head.tx is None:
            self._at_once(lambda tx: skip_key(self.database, tx, key))

    def hold(self, most: int, seconds: float, *, locked: bool = False) -> None:
        """Somebody locks messages and lets them go unchanged, as a cancel that is rolled back; with `locked` such as relays have, too."""
        tx = self.database.begin()
        free = [row for row in self.database.rows.values() if tx.free(row) and (locked or row.lock_expires_at is None)]
        for row in self.chance.sample(free, min(most, len(free))):
            tx.hold(row)
            row.held_until = self.database.moment() + seconds
        self.server.open_for(tx, seconds)

    def restore(self, messages: int, *, higher: bool) -> None:
        """Messages of another cluster come back with the ids that they had there. Some are locked, and some have to wait."""
        first, now = self.database.xmax + FAR if higher else LOWER, self.database.now()
        for place in range(messages):
            row = self._message(self.chance.choice(GOOD), self.chance.choice((None, *KEYS)))
            row.at = (first + place // 3, self.database.next_seq())
            if row.key is None and self.chance.random() < 0.2:
                row.lock_expires_at, row.lock_token, row.locked_by, row.attempts = now + self.chance.random() * 10, "other", OTHER, 1
            elif self.chance.random() < 0.2:
                row.available_at = now + self.chance.uniform(-5.0, 5.0)
            self.database.add(row)
            row.visible = math.inf
            if not higher:
                self.database.settle_in(row)

    def renumber(self) -> None:
        """Somebody starts a relay, or a relay looks by itself; what others have locked is waited for."""
        if not any(row.tx for row in self.database.between((self.database.xmax, 0), LAST)):
            self._at_once(lambda tx: renumber(self.database, tx, {"most": 10**6}))

    def set_clock(self, seconds: float) -> None:
        """The server's clock is set ahead by so much of what it should show, or back."""
        self.database.ahead = seconds
        self.latest = max(self.latest, seconds)
        for relay in self.living:
            relay.upset_at = relay.clock_set_at = self.loop.now
            relay.may_lose = SETTINGS.window

    def refuse(self, most: int) -> None:
        """A trigger refuses the UPDATE of some messages that wait, until it is gone."""
        waiting = [row for row in self.database.rows.values() if row.lock_expires_at is None and row.tx is None]
        for row in self.chance.sample(waiting, min(most, len(waiting))):
            row.kept = True

    def refuse_none(self) -> None:
        """That trigger is gone."""
        for row in self.database.rows.values():
            row.kept = False

    def sweep(self) -> None:
        """The minute's sweep of pg_cron."""
        self._at_once(lambda tx: sweep_minute(self.database, tx, {}))

    def lose_partition(self) -> None:
        """The archive's partition of today is gone, until a relay makes it."""
        self.database.no_partition = True

    def decide(self, name: str, value: str) -> None:
        """An operator changes the policy."""
        self.database.settings[name] = value

    def _at_once(self, do: Callable[[Transaction], object]) -> None:
        tx = self.database.begin()
        do(tx)
        tx.commit()

    def _undo(self, writer: Transaction, kept: int) -> None:
        self.ledger.rolled_back |= {row.id: None for row in writer.rows[kept:]}
        del writer.rows[kept:]

    def _commit(self, writer: Transaction) -> None:
        writer.commit()
        self.hearing.ended(writer, committed=True)
