"""Where one scan in claim order continues: its head, and the transactions that may still show messages below the head.

Claim order is (xid, seq). A message can appear below the head only if its transaction was still running when the head passed it.
Such a transaction is in the snapshot of the same statement. It is *late*: statements ask for its messages until it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from relay.message import START, Position, Range

LAST_SEQ = 2**63 - 1
LAST_XID = 2**63 - 1
MAX_LATE = 64
"""Most late transactions that one statement asks for: first the ended transactions, then the oldest running ones."""


class Snapshot(NamedTuple):
    """The result of `pg_current_snapshot()`: every transaction below xmax has finished, except those in `running`."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `xmin:xmax:xip,…` (PostgreSQL docs, 9.27 "pg_snapshot")."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def ended(self, xid: int) -> bool:
        """Whether a transaction has ended, so that its rows are visible now or never will be."""
        return xid < self.xmax and xid not in self.running


@dataclass(slots=True)
class Cursor:
    """Where a scan continues. It belongs to one connection, because a failover may lower the transaction counter."""

    head: Position = START
    late: dict[int, int] = field(default_factory=dict)
    """Transactions that were running when the head passed them, with the `seq` up to which their messages were seen."""
    running: frozenset[int] = frozenset()
    """Transactions that were running at the last statement; ended transactions come before them in `ranges`."""

    def ranges(self) -> list[Range]:
        """The ranges that the next statement reads, in claim order: late transactions, then everything above the head."""
        late = sorted(sorted(self.late, key=lambda xid: (xid in self.running, xid))[:MAX_LATE])
        return [*(Range(Position(xid, self.late[xid]), xid + 1) for xid in late), Range(self.head, LAST_XID)]

    def advance(self, ranges: Sequence[Range], reached: Sequence[Position | None], snapshot: Snapshot) -> None:
        """Record how far a statement read in each of its ranges.

        Args:
            ranges: the result of `ranges`.
            reached: for each range, the last position read if the range was cut short, or None if the range was read to its end.
                There are fewer entries than ranges if the statement did not reach the later ranges.
            snapshot: the statement's own snapshot.

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
        """A cursor after everything that a statement saw."""
        cursor = cls(running=snapshot.running)
        cursor._move(Position(snapshot.xmax - 1, LAST_SEQ), snapshot)
        return cursor

    def fork(self) -> Cursor:
        """A second cursor that continues from the same place."""
        return Cursor(self.head, dict(self.late), self.running)

    def joined(self, other: Cursor) -> Cursor:
        """A cursor for the messages of both cursors: it has the lower head and the late transactions of either below that head."""
        head = min(self.head, other.head)
        both = {xid: min(self.late[xid], other.late[xid]) for xid in self.late.keys() & other.late.keys()}
        late = {xid: seq for xid, seq in (other.late | self.late | both).items() if xid <= head.xid}
        return Cursor(head, late, self.running | other.running)


def cut_at(ranges: Sequence[Range], last: Position) -> list[Position | None]:
    """The `reached` of a statement that stopped at a position: it read earlier ranges to their ends and did not begin later ones."""
    done = [one for one in ranges if one.below <= last.xid]
    return [*[None] * len(done), last]
