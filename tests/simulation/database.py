"""The tables of a queue in memory: transactions that end in any order, row locks, snapshots, and a clock of its own."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import islice
from typing import Any, Protocol

from relay.claims.lanes import LANES, lane_of
from tests.simulation.rows import START, Archived, At, Lane, RelayRow, Row

GOOD, BAD = ("orders", "audit", "mail"), "bad"
"""Exchanges: those that may have their troubles, and one that is never as it should be."""
LIMITED = GOOD[:2]
"""Those that operators limit."""
EPOCH = 1_700_000_000.0
"""The database's time when the loop's is 0."""
lane = cache(lane_of)
POLICY = {"lock_seconds": "10", "max_attempts": "12", "backoff_base": "1", "backoff_max": "2", "on_lock_expired": "retry"}


class Watch(Protocol):
    """Hears of every change as it is committed."""

    def committed(self, row: Row) -> None:
        """Others can see a new message."""

    def locked(self, row: Row, relay: int) -> None:
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
        self.ordered: list[At] = []
        """Those with a key, of all keys, in claim order."""
        self.by_key: dict[str, list[At]] = {}
        self.locks: dict[At, Row] = {}
        self.waits: dict[bool, list[tuple[float, At]]] = {False: [], True: []}
        """Those that were ever told to wait, locked or not, by the end of their wait: those without a key, and those with one."""
        self.suspects: dict[At, Row] = {}
        """Those that came back from an expired lock."""
        self.archive: dict[str, Archived] = {}
        self.relays: dict[int, RelayRow] = {}
        self.lanes = [Lane(number) for number in range(LANES)]
        self.settings = dict(POLICY)
        self.paused: dict[str, None] = {}
        self.limited: dict[str, float] = {}
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
        return f"{self.xmin}:{self._xid}:{','.join(map(str, self.running))}"

    @property
    def xmin(self) -> int:
        """The oldest transaction that is running, else the next one."""
        return next(iter(self.running), self._xid)

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
            insort(self.ordered, row.at)
            insort(self.by_key.setdefault(row.key, []), row.at)
        if row.available_at is not None:
            insort(self.waits[row.key is not None], (row.available_at, row.at))
        self.watch.committed(row)

    def lock(self, row: Row, until: float, token: str, relay: int) -> None:
        """Give a relay a message's lock."""
        self.locks[row.at] = row
        self.suspects.pop(row.at, None)
        row.lock_expires_at, row.lock_token, row.locked_by = until, token, relay

    def unlock(self, row: Row, relay: int | None, available_at: float) -> None:
        """Take a lock off; who had it stays noted on what comes back from an expired one."""
        self.locks.pop(row.at, None)
        row.lock_expires_at, row.lock_token, row.locked_by = None, None, relay
        if relay is not None:
            self.suspects[row.at] = row
        self.wait(row, available_at)
        if row.key is not None and (head := self.rows[self.by_key[row.key][0]]) is not row:
            # It had been overtaken: committed late, it waited for this one.
            head.since = self.now()

    def wait(self, row: Row, until: float) -> None:
        """Let a message be due at a moment."""
        waits = self.waits[row.key is not None]
        if row.available_at is not None:
            _remove(waits, (row.available_at, row.at))
        row.available_at = until
        insort(waits, (until, row.at))

    def move(self, row: Row, result: str, code: str | None, handled_by: str, claimed_at: float | None = None) -> None:
        """Move a message to the archive."""
        self.watch.archived(row, result)
        del self.rows[row.at]
        _remove(self.order, row.at)
        self.locks.pop(row.at, None)
        self.suspects.pop(row.at, None)
        if row.available_at is not None:
            _remove(self.waits[row.key is not None], (row.available_at, row.at))
        if row.key is not None:
            _remove(self.ordered, row.at)
            keyed = self.by_key[row.key]
            _remove(keyed, row.at)
            if keyed:
                self.rows[keyed[0]].since = self.now()
        self.archive[row.id] = Archived(row, result, code, handled_by, claimed_at)

    def above(self, at: At, *, ordered: bool = False) -> Iterator[Row]:
        """Rows above a position in claim order."""
        order = self.ordered if ordered else self.order
        return (self.rows[order[place]] for place in range(bisect_right(order, at), len(order)))

    def of(self, xids: Collection[int], *, ordered: bool = False) -> Iterator[Row]:
        """Rows of some transactions, in claim order."""
        order = self.ordered if ordered else self.order
        for xid in sorted(xids):
            yield from map(self.rows.__getitem__, order[bisect_left(order, (xid,)) : bisect_left(order, (xid + 1,))])

    def over(self, *, ordered: bool) -> Iterator[Row]:
        """Unlocked messages whose wait is over, by the end of their wait, that are no suspects."""
        waits, rows = self.waits[ordered], self.rows
        due = islice(waits, bisect_left(waits, (self.now(), (math.inf,))))
        return (row for _, at in due if (row := rows[at]).lock_expires_at is None and row.locked_by is None)

    def back(self) -> list[Row]:
        """Suspects whose wait is over, by its end."""
        now = self.now()
        due = ((row.available_at, row.at, row) for row in self.suspects.values() if row.available_at is not None)
        return [row for until, _, row in sorted(due) if until <= now]

    def head_of(self, key: str) -> Row | None:
        """The lowest message of a key, in any state."""
        keyed = self.by_key.get(key)
        return self.rows[keyed[0]] if keyed else None

    def locked(self) -> list[Row]:
        """Rows with a lock, in claim order."""
        return [self.locks[at] for at in sorted(self.locks)]

    def alive(self, seconds: float) -> list[int]:
        """Relays whose heartbeat was heard within so many seconds."""
        now = self.now()
        return [number for number, relay in self.relays.items() if now - seconds < relay.heartbeat_at < now + seconds]


def _remove(order: list[Any], item: object) -> None:
    """Take one out of what stands in order."""
    del order[bisect_left(order, item)]


__all__ = ["START", "Archived", "At", "BlockedError", "Database", "Lane", "RelayRow", "Row", "Transaction", "Watch", "lane"]
