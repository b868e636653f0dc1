"""The tables of a queue in memory: transactions that end in any order, row locks, snapshots, and a clock of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from zlib import crc32

from relay.postgres.store import LAG
from tests.simulation.rows import START, Archived, At, ClockSeen, Lane, RelayRow, Row
from tests.simulation.transaction import BlockedError, Transaction

GOOD, BAD = ("orders", "audit", "mail"), "bad"
"""Exchanges: those that may have their troubles, and one that is never as it should be."""
LIMITED = GOOD[:2]
"""Those that operators limit."""
KEYS = ("k0", "k1", "k2", "Grüße", "鍵")
OWN = 1000
"""The first transaction of this cluster."""
EPOCH = 1_700_000_000.0
"""The database's time when the loop's is 0."""
LAST: At = (2**63, 0)
"""Behind every message."""
LANES = 64
OVERLAP = LAG - 0.1
"""Seconds after its wait is over in which a message that commits is still found by the scan of waits, less what statements take."""
POLICY = {"lock_seconds": "10", "max_attempts": "12", "backoff_base": "1", "backoff_max": "2", "on_lock_expired": "retry"}


class Watch(Protocol):
    """Hears of every change as it is committed."""

    def committed(self, row: Row) -> None:
        """Others can see a new message."""

    def locked(self, row: Row, relay: int) -> None:
        """It is about to get a lock, and is still unchanged."""

    def fenced(self, row: Row, token: object) -> None:
        """A write under a lock token is about to change it."""

    def expired(self, row: Row) -> None:
        """Its lock has expired and is about to be taken off."""

    def archived(self, row: Row, result: str) -> None:
        """It is about to leave the queue."""


class Database:
    """Tables, settings, and who is at work.

    Args:
        moment: seconds that no clock counts but the loop's.
        watch: hears of every change.
        salt: what lanes are computed from in addition to their keys, as by an encoding that no relay knows.

    """

    commits = 0
    no_partition = False
    _xid = OWN
    _seq = 0
    _relay = 0
    highest: At = (0, 0)
    """Where the last message in claim order was inserted."""

    def __init__(self, moment: Callable[[], float], watch: Watch, salt: int = 0) -> None:
        self.moment = moment
        self.watch = watch
        self._salt = salt
        self.settle_in: Callable[[Row], object] = lambda _row: None
        """Hears of a message of another cluster that is where it stays."""
        self.ahead = 0.0
        """Seconds by which the server's clock was set ahead."""
        self.rows: dict[At, Row] = {}
        self.order: list[At] = []
        self.ordered: list[At] = []
        """Those with a key, of all keys, in claim order."""
        self.by_key: dict[str, list[At]] = {}
        self.locks: dict[At, Row] = {}
        self.waits: list[tuple[float, At]] = []
        """Those that ever had to wait, locked or not, by the end of their wait."""
        self.archive: dict[str, Archived] = {}
        self.relays: dict[int, RelayRow] = {}
        self.lanes = [Lane(number) for number in range(LANES)]
        self.settings = dict(POLICY)
        self.paused: dict[str, None] = {}
        self.limited: dict[str, float] = {}
        self.decided_at: dict[str, float] = {}
        """The moment when an operator last decided about an exchange."""
        self.parked: dict[str, None] = {}
        self.refused: dict[str, None] = {}
        """Ids of messages whose values the archive does not take."""
        self.odd: dict[str, None] = {}
        """Ids of messages that the archive has ever refused: their settles come back for them later and later."""
        self.clock_seen = ClockSeen()
        self.running: dict[int, Transaction] = {}

    def now(self) -> float:
        """Seconds since the epoch, by the database's clock."""
        return EPOCH + self.moment() + self.ahead

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

    def lane(self, key: str) -> int:
        """Compute the lane of an ordering key."""
        return crc32(key.encode(), self._salt) % LANES

    @property
    def xmax(self) -> int:
        """The next transaction: whatever claims to be no older has another cluster's ids."""
        return self._xid

    def add(self, row: Row) -> None:
        """Put a message where others see it."""
        row.visible, row.since = self.commits, self.moment()
        row.low = row.at < self.highest or (row.available_at is not None and self.now() > row.available_at + OVERLAP)
        if row.at[0] < self.xmax:
            self.highest = max(self.highest, row.at)
        row.lane = None if row.key is None else self.lane(row.key)
        self._place(row)
        self.watch.committed(row)

    def renumber(self, row: Row, at: At) -> None:
        """Give a message another position, as one with another cluster's ids gets it."""
        self._displace(row)
        row.at, row.since, row.low = at, self.moment(), True
        self._place(row)

    def _place(self, row: Row) -> None:
        self.rows[row.at] = row
        insort(self.order, row.at)
        if row.lock_expires_at is not None:
            self.locks[row.at] = row
        if row.key is not None:
            insort(self.ordered, row.at)
            insort(self.by_key.setdefault(row.key, []), row.at)
        if row.available_at is not None:
            insort(self.waits, (row.available_at, row.at))

    def _displace(self, row: Row) -> None:
        del self.rows[row.at]
        _remove(self.order, row.at)
        self.locks.pop(row.at, None)
        if row.available_at is not None:
            _remove(self.waits, (row.available_at, row.at))
        if row.key is not None:
            _remove(self.ordered, row.at)
            _remove(self.by_key[row.key], row.at)

    def lock(self, row: Row, until: float, token: str, relay: int) -> None:
        """Give a relay a message's lock."""
        self.locks[row.at] = row
        row.locked_at = self.moment()
        row.lock_expires_at, row.lock_token, row.locked_by = until, token, relay

    def unlock(self, row: Row, relay: int | None, available_at: float) -> None:
        """Take a lock off; who had it stays noted on what comes back from an expired one."""
        self.locks.pop(row.at, None)
        row.lock_expires_at, row.lock_token, row.locked_by = None, None, relay
        self.wait(row, available_at)
        if row.key is not None and (head := self.rows[self.by_key[row.key][0]]) is not row:
            # It had been overtaken: committed late, it waited for this one.
            head.since = self.moment()

    def wait(self, row: Row, until: float) -> None:
        """Let a message be due at a moment."""
        if row.available_at is not None:
            _remove(self.waits, (row.available_at, row.at))
        row.available_at = until
        insort(self.waits, (until, row.at))

    def move(self, row: Row, result: str, code: str | None, handled_by: str, claimed_at: float | None = None) -> None:
        """Move a message to the archive."""
        self.watch.archived(row, result)
        self._displace(row)
        if row.key is not None and (keyed := self.by_key[row.key]):
            self.rows[keyed[0]].since = self.moment()
        self.archive[row.id] = Archived(row, result, code, handled_by, claimed_at)

    def between(self, after: At, below: At, *, ordered: bool = False) -> Iterator[Row]:
        """Rows above a position and below another one, in claim order."""
        order = self.ordered if ordered else self.order
        return (self.rows[order[place]] for place in range(bisect_right(order, after), bisect_left(order, below)))

    def due(self, after: float, position: At = LAST) -> Iterator[Row]:
        """Messages whose wait ended after a time, by its end; and of that time itself those after a position."""
        waits = self.waits
        first, end = bisect_right(waits, (after, position)), bisect_right(waits, (self.now(), LAST))
        return (self.rows[waits[place][1]] for place in range(first, end))

    def head_of(self, key: str) -> Row | None:
        """The lowest message of a key, in any state."""
        keyed = self.by_key.get(key)
        return self.rows[keyed[0]] if keyed else None

    def is_head(self, row: Row) -> bool:
        """Nothing of its key is before it. A message without a key is always a head."""
        return row.key is None or self.by_key[row.key][0] == row.at

    def locked(self) -> list[Row]:
        """Rows with a lock, in claim order."""
        return [self.locks[at] for at in sorted(self.locks)]

    def alive(self, seconds: float) -> list[int]:
        """Relays whose heartbeat was heard within so many seconds."""
        now = self.now()
        return [number for number, relay in self.relays.items() if now - seconds < relay.heartbeat_at < now + seconds]


def _remove(order: list[Any], item: object) -> None:
    """Take one item out of a sorted list."""
    del order[bisect_left(order, item)]


__all__ = ["START", "Archived", "At", "BlockedError", "ClockSeen", "Database", "Lane", "RelayRow", "Row", "Transaction", "Watch"]
