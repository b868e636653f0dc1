"""What applications and operators do to a world's queue."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.database import Database, Row, Transaction
from tests.simulation.hearing import Hearing
from tests.simulation.ledger import Ledger
from tests.simulation.relay import SimulatedRelay
from tests.simulation.server import Server
from tests.simulation.sweeps import skip_key, sweep_all, wake_key


class People:
    """Their part of a world."""

    chance: Random
    database: Database
    ledger: Ledger
    server: Server
    hearing: Hearing
    relays: list[SimulatedRelay]
    _messages = 0

    def __init__(self) -> None:
        self.writers: list[Transaction] = []

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
        self._messages += 1
        now = self.database.now()
        row = Row(f"{self._messages:08x}-0000-7000-8000-000000000000", exchange, key_of, key)
        row.available_at = now + wait if wait else None
        row.expires_at = now + expires if expires else None
        if refused:
            self.database.refused[row.id] = self.database.odd[row.id] = None
        tx = self.writers[-1] if self.writers else self.database.begin()
        tx.insert(row)
        self.hearing.inserted(tx)
        if not self.writers:
            self._commit(tx)

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
        """One of the writers takes its last messages back, and goes on."""
        if self.writers:
            writer = self.writers[which % len(self.writers)]
            self._undo(writer, self.chance.randrange(len(writer.rows) + 1))

    def pause(self, exchange: str, paused: bool) -> None:
        """An operator holds an exchange, or lets it go."""
        self.database.paused.pop(exchange, None)
        if paused:
            self.database.paused[exchange] = None

    def limit(self, exchange: str, per_second: float | None) -> None:
        """An operator limits an exchange, or lifts its limit."""
        self.database.limited.pop(exchange, None)
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
            head.since = self.database.now()
        self._at_once(lambda tx: wake_key(self.database, tx, key))

    def skip(self, key: str) -> None:
        """An operator skips a key's head."""
        head = self.database.head_of(key)
        if head is None or head.tx is None:
            self._at_once(lambda tx: skip_key(self.database, tx, key))

    def hold(self, most: int, seconds: float) -> None:
        """Somebody locks messages that are ready, and lets them go unchanged: claims step over them meanwhile."""
        tx = self.database.begin()
        for row in [row for row in self.database.rows.values() if row.ready and tx.free(row)][:most]:
            tx.hold(row)
            self.database.odd[row.id] = None
        self.server.open_for(tx, seconds)

    def sweep(self) -> None:
        """The minute's sweep of pg_cron."""
        self._at_once(lambda tx: sweep_all(self.database, tx, {}))

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
