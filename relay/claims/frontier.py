"""Head and pending: where to claim next, without ever walking left again and without missing what commits late.

Claim order is (xid, seq). A message can appear below the head only if its transaction was still running when the head
passed it, and then it stands in the snapshot of that same claim statement; those transactions are `pending`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from relay.message import START, Position

LAST_SEQ = 2**63 - 1


class Snapshot(NamedTuple):
    """What `pg_current_snapshot()` says: every transaction below xmax is finished, but for those in `running`."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `xmin:xmax:xip,…` (PostgreSQL docs, 9.27 "pg_snapshot")."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())


@dataclass(slots=True)
class Frontier:
    """Where one stream of messages goes on; belongs to one connection, since a failover may lower the xid counter."""

    head: Position = START
    pending: set[int] = field(default_factory=set)
    ripe: set[int] = field(default_factory=set)
    """Those of the pending that the last snapshot showed finished: only they can show messages, so only they are asked for."""
    reached: dict[int, int] = field(default_factory=dict)
    """How far a look has come in a pending transaction that has finished: many messages of one are not walked again and again."""

    def passed(self, last: Position | None, snapshot: Snapshot, *, exhausted: bool) -> None:
        """Move the head to the last claimed position, or past all finished transactions if nothing was left.

        Args:
            last: the highest position claimed by the statement, None if it claimed nothing.
            snapshot: that same statement's snapshot.
            exhausted: neither a limit on messages nor one on bytes cut the statement short.

        """
        newest = Position(snapshot.xmax - 1, LAST_SEQ)
        # A restored database holds xids that are still to come here; a head up there would miss what begins meanwhile.
        reached = newest if exhausted else min(last or self.head, newest)
        if reached > self.head:
            self.head = reached
            self.pending |= {xid for xid in snapshot.running if xid <= reached.xid}
        self.ripe = {xid for xid in self.pending if xid < snapshot.xmax and xid not in snapshot.running}

    def probed(self, asked: Collection[int], snapshot: Snapshot, *, exhausted: bool, last: Position | None = None) -> None:
        """Forget the pending transactions that had finished when all their messages were asked for.

        Args:
            asked: the transactions, whose messages were asked for in claim order.
            snapshot: that statement's own.
            exhausted: no limit cut it short.
            last: where a limit cut it; transactions below are done, and one in the middle goes on from there.

        """
        ended = {xid for xid in asked if xid not in snapshot.running and xid < snapshot.xmax}
        done = ended if exhausted else {xid for xid in ended if last and xid < last.xid}
        self.pending -= done
        self.ripe -= done
        for xid in done:
            self.reached.pop(xid, None)
        if not exhausted and last and last.xid in ended & self.pending:
            self.reached[last.xid] = last.seq

    def merge(self, other: Frontier, snapshot: Snapshot) -> None:
        """Take back a stream that was split off and claimed everything that `snapshot` shows.

        What began after that snapshot may already lie below this head, so the head goes back to it.
        """
        both = {xid: min(self.reached.get(xid, 0), other.reached.get(xid, 0)) for xid in self.pending & other.pending}
        self.reached = {xid: seq for xid, seq in ({**self.reached, **other.reached} | both).items() if seq}
        self.pending |= other.pending | {xid for xid in snapshot.running if xid <= self.head.xid}
        self.head = min(self.head, Position(snapshot.xmax - 1, LAST_SEQ))

    def fork(self) -> Frontier:
        """A second frontier that goes on from the same place."""
        return Frontier(self.head, set(self.pending), set(self.ripe), dict(self.reached))

    @property
    def low(self) -> Position:
        """The lowest position at which this stream may still claim."""
        return min((self.head, *(Position(xid, self.reached.get(xid, 0)) for xid in self.pending)))

    @property
    def lowest_head(self) -> Position:
        """The head, or how far a look has come in a transaction below it."""
        return min((self.head, *(Position(xid, seq) for xid, seq in self.reached.items())))
