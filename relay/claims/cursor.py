"""Where one scan in claim order continues: its head, and the transactions that may still show messages below it.

Claim order is (xid, seq). A message can appear below the head only if its transaction was still running when the head passed it.
That transaction is in the snapshot of the same statement: it is late, and statements ask for its messages until it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from relay.message import START, Position, Range

LAST_SEQ = 2**63 - 1
LAST_XID = 2**63 - 1
MAX_LATE = 64
"""Late transactions that one statement asks for: those that have ended before others, and the oldest first."""


class Snapshot(NamedTuple):
    """What `pg_current_snapshot()` says: every transaction below xmax is finished, but for those in `running`."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `xmin:xmax:xip,…` (PostgreSQL docs, 9.27 "pg_snapshot")."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def ended(self, xid: int) -> bool:
        """Whether all that a transaction has inserted is visible, or never will be."""
        return xid < self.xmax and xid not in self.running


@dataclass(slots=True)
class Cursor:
    """Belongs to one connection, since a failover may lower the counter of transactions."""

    head: Position = START
    late: dict[int, int] = field(default_factory=dict)
    """Transactions that were running when the head passed them, and the number up to which their messages were seen."""
    running: frozenset[int] = frozenset()
    """Transactions that ran when a statement looked last; where there are many, those that have ended must not wait behind them."""

    def ranges(self) -> list[Range]:
        """Where the next statement looks, in claim order: late transactions, then everything above the head."""
        late = sorted(sorted(self.late, key=lambda xid: (xid in self.running, xid))[:MAX_LATE])
        return [*(Range(Position(xid, self.late[xid]), xid + 1) for xid in late), Range(self.head, LAST_XID)]

    def advance(self, ranges: Sequence[Range], reached: Sequence[Position | None], snapshot: Snapshot) -> None:
        """Take over how far a statement came in each of its ranges.

        Args:
            ranges: as `ranges` gave them.
            reached: the last position seen of each that was cut short, None where nothing is left; shorter if
                it did not reach the later ranges.
            snapshot: that statement's own.

        """
        *late, _ = ranges
        self.running = snapshot.running
        for one, position in zip(late, reached, strict=False):
            xid = one.after.xid
            if position is not None:
                self.late[xid] = max(position.seq, self.late.get(xid, 0))
            elif snapshot.ended(xid):
                self.late.pop(xid, None)
        if len(reached) == len(ranges):
            self._move(reached[-1] or Position(snapshot.xmax - 1, LAST_SEQ), snapshot)

    def _move(self, head: Position, snapshot: Snapshot) -> None:
        if head > self.head:
            self.head = head
            self.late = {xid: 0 for xid in snapshot.running if xid <= head.xid} | self.late

    @classmethod
    def behind(cls, snapshot: Snapshot) -> Self:
        """A cursor behind everything that a statement saw."""
        cursor = cls(running=snapshot.running)
        cursor._move(Position(snapshot.xmax - 1, LAST_SEQ), snapshot)
        return cursor

    def fork(self) -> Cursor:
        """A second cursor that continues from the same place."""
        return Cursor(self.head, dict(self.late), self.running)

    def joined(self, other: Cursor) -> Cursor:
        """A cursor for the messages of both: from the lower head on, and what is late for either is late, if that head has passed it."""
        head = min(self.head, other.head)
        both = {xid: min(self.late[xid], other.late[xid]) for xid in self.late.keys() & other.late.keys()}
        late = {xid: seq for xid, seq in (other.late | self.late | both).items() if xid <= head.xid}
        return Cursor(head, late, self.running | other.running)


def cut_at(ranges: Sequence[Range], last: Position) -> list[Position | None]:
    """How far a statement came in its ranges that ended at a position: the ranges before it are done, those behind it were not begun."""
    done = [one for one in ranges if one.below <= last.xid]
    return [*[None] * len(done), last]
