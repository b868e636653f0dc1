"""The tables of a queue in memory: transactions that end in any order, row locks, snapshots, and a clock of its own."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.lanes import LANES, lane_of

At = tuple[int, int]
START: At = (0, 0)
GOOD, BAD = ("orders", "audit", "mail"), "bad"
"""Exchanges: those that may have their troubles, and one that is never as it should be."""
EPOCH = 1_700_000_000.0
"""The database's time when the loop's is 0."""
POLICY = {"lock_seconds": "10", "max_attempts": "12", "backoff_base": "1", "backoff_max": "2", "on_lock_expired": "retry"}


@dataclass(slots=True, eq=False, repr=False)
class Row:
    """One message, with what the ledger wants to know of it."""

    id: str
    exchange: str
    routing_key: str = ""
    key: str | None = None
    available_at: float | None = None
    expires_at: float | None = None
    size: int = 2
    at: At = START
    lock_expires_at: float | None = None
    lock_token: str | None = None
    locked_by: int | None = None
    attempts: int = 0
    last_error: str | None = None
    tx: Transaction | None = None
    """Whose change is not committed yet; for others the row stands as it is, and is locked."""
    visible: int = 0
    """When others could see it first, in commits."""
    since: float = 0.0
    """When others could see it first, or when it became the head of its key."""
    free_at: float = 0.0
    """When it last lost a lock to its expiry."""

    def __repr__(self) -> str:
        state = f"locked by {self.locked_by} until {self.lock_expires_at}" if self.lock_expires_at else f"due at {self.available_at}"
        return f"<{self.id[:8]} {self.exchange}/{self.routing_key} key {self.key} at {self.at}, {self.attempts} attempts, {state}>"

    @property
    def ready(self) -> bool:
        """Neither locked nor ever told to wait."""
        return self.lock_expires_at is None and self.available_at is None


class Archived(NamedTuple):
    """One row of the archive."""

    row: Row
    result: str
    code: str | None
    handled_by: str
    claimed_at: float | None


@dataclass(slots=True)
class RelayRow:
    """A relay's own row."""

    heartbeat_at: float
    low: At = START
    head: At = START
    top: At = START
    left: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """A lane's owner, its epoch, and who has locked its row."""

    number: int
    owner: int | None = None
    epoch: int = 0
    tx: Transaction | None = None
    sharers: dict[Transaction, None] = field(default_factory=dict)


class Watch(Protocol):
    """Hears of every change as it is committed."""

    def committed(self, row: Row) -> None:
        """Others can see a new message."""

    def locked(self, row: Row) -> None:
        """It is about to get a lock: it still stands as it was."""

    def fenced(self, row: Row, token: object) -> None:
        """A write under a lock token is about to change it."""

    def expired(self, row: Row) -> None:
        """Its lock has expired and is about to be taken off."""

    def archived(self, row: Row, result: str) -> None:
        """It is about to leave the queue."""


class BlockedError(Exception):
    """The statement waits for a lock of somebody else."""


class Transaction:
    """What one client does between begin and end; its changes are there for others when it commits."""

    __slots__ = ("_changes", "_database", "_held", "_lanes", "done", "rows", "xid")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: list[Callable[[], object]] = []
        self._held: list[Row] = []
        self._lanes: list[Lane] = []
        self.xid = 0
        self.rows: list[Row] = []
        self.done = False

    def insert(self, row: Row) -> None:
        """Insert a message that others see after the commit."""
        row.at = (self._begin_to_write(), self._database.next_seq())
        self.rows.append(row)

    def free(self, row: Row) -> bool:
        """Nobody else has it locked."""
        return row.tx is None or row.tx is self

    def hold(self, row: Row) -> None:
        """Lock a row until the end.

        Raises:
            BlockedError: somebody else has it.
        """
        if not self.free(row):
            raise BlockedError
        row.tx = self
        self._held.append(row)

    def hold_lane(self, lane: Lane, *, share: bool) -> None:
        """Lock a lane's row, for itself or with others.

        Raises:
            BlockedError: somebody else has it.
        """
        if lane.tx not in {None, self} or (not share and lane.sharers.keys() - {self}):
            raise BlockedError
        if share:
            lane.sharers[self] = None
        else:
            lane.tx = self
        self._lanes.append(lane)

    def then(self, change: Callable[[], object]) -> None:
        """Do something at the commit."""
        self._begin_to_write()
        self._changes.append(change)

    def commit(self) -> None:
        """Let others see what was done."""
        database = self._database
        database.commits += 1
        for row in self.rows:
            database.add(row)
        for change in self._changes:
            change()
        self.rollback()

    def rollback(self) -> None:
        """Let nobody see it."""
        self.done = True
        self._database.running.pop(self.xid, None)
        for row in self._held:
            row.tx = None
        for lane in self._lanes:
            lane.sharers.pop(self, None)
            lane.tx = None if lane.tx is self else lane.tx

    def _begin_to_write(self) -> int:
        if not self.xid:
            self.xid = self._database.next_xid()
            self._database.running[self.xid] = self
        return self.xid


class Database:
    """Tables, settings, and who is at work."""

    def __init__(self, now: Callable[[], float], watch: Watch) -> None:
        self._now = now
        self.watch = watch
        self.rows: dict[At, Row] = {}
        self.order: list[At] = []
        self.by_key: dict[str, list[At]] = {}
        self.archive: dict[str, Archived] = {}
        self.relays: dict[int, RelayRow] = {}
        self.lanes = [Lane(number) for number in range(LANES)]
        self.settings = dict(POLICY)
        self.paused: dict[str, None] = {}
        self.parked: dict[str, None] = {}
        self.refused: dict[str, None] = {}
        """Ids of messages whose values the archive does not take."""
        self.odd: dict[str, None] = {}
        """Ids of messages that the archive has refused, or that somebody has locked beside the relays: a head may have passed those."""
        self.no_partition = False
        self.running: dict[int, Transaction] = {}
        self.commits = 0
        self._xid = 1000
        self._seq = 0
        self._relay = 0

    def now(self) -> float:
        """Seconds since the epoch, by the database's clock."""
        return EPOCH + self._now()

    def begin(self) -> Transaction:
        """Begin a transaction; it has an xid from its first write on."""
        return Transaction(self)

    @property
    def snapshot(self) -> str:
        """Text of `pg_current_snapshot()`."""
        running = sorted(self.running)
        return f"{running[0] if running else self._xid}:{self._xid}:{','.join(map(str, running))}"

    @property
    def xmin(self) -> int:
        """The oldest transaction that is running, else the next one."""
        return min(self.running, default=self._xid)

    def ended(self, xid: int) -> bool:
        """A snapshot taken now shows that transaction."""
        return xid < self._xid and xid not in self.running

    def next_xid(self) -> int:
        """Number the next transaction that writes."""
        self._xid += 1
        return self._xid - 1

    def next_seq(self) -> int:
        """Number the next message."""
        self._seq += 1
        return self._seq

    def next_relay(self) -> int:
        """Number the next relay."""
        self._relay += 1
        return self._relay

    def add(self, row: Row) -> None:
        """Put a message where others see it."""
        row.visible, row.since = self.commits, self.now()
        self.rows[row.at] = row
        insort(self.order, row.at)
        if row.key is not None:
            insort(self.by_key.setdefault(row.key, []), row.at)
        self.watch.committed(row)

    def move(self, row: Row, result: str, code: str | None, handled_by: str, claimed_at: float | None = None) -> None:
        """Move a message to the archive."""
        self.watch.archived(row, result)
        del self.rows[row.at], self.order[bisect_left(self.order, row.at)]
        if row.key is not None:
            keyed = self.by_key[row.key]
            del keyed[bisect_left(keyed, row.at)]
            if keyed:
                self.rows[keyed[0]].since = self.now()
        self.archive[row.id] = Archived(row, result, code, handled_by, claimed_at)

    def above(self, at: At) -> Iterator[Row]:
        """Rows above a position in claim order."""
        for place in range(bisect_left(self.order, (at[0], at[1] + 1)), len(self.order)):
            yield self.rows[self.order[place]]

    def head_of(self, key: str) -> Row | None:
        """The lowest message of a key, in any state."""
        keyed = self.by_key.get(key)
        return self.rows[keyed[0]] if keyed else None

    def locked(self) -> list[Row]:
        """Rows with a lock, in claim order."""
        return [row for at in self.order if (row := self.rows[at]).lock_expires_at is not None]

    def alive(self, seconds: float) -> list[int]:
        """Relays whose heartbeat was heard within so many seconds."""
        since = self.now() - seconds
        return [number for number, relay in self.relays.items() if relay.heartbeat_at > since]


__all__ = ["Archived", "At", "BlockedError", "Database", "Lane", "RelayRow", "Row", "Transaction", "Watch", "lane_of"]
