"""A queue in memory with transactions that begin, commit and roll back in any order: the rules of visibility, and no database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.message import Batch, Position, Range
from relay.ports import Claimed, Fresh, Wanted
from tests.support.fakes.adapters import a_batch, a_claim


@dataclass
class Transaction:
    """One writer; it has an xid from its first write on."""

    xid: int
    rows: list[tuple[Position, str]] = field(default_factory=list)


class ModelQueue:
    """What claims see: rows of committed transactions that are not claimed."""

    def __init__(self) -> None:
        self._next_xid = 100
        self._next_seq = 1
        self.running: dict[int, Transaction] = {}
        self.committed: dict[Position, str] = {}
        self.claimed: dict[Position, str] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        """Called between a statement and its answer."""

    def begin(self) -> int:
        """Start a transaction and return its xid."""
        xid, self._next_xid = self._next_xid, self._next_xid + 1
        self.running[xid] = Transaction(xid)
        return xid

    def insert(self, xid: int, exchange: str) -> None:
        """Insert a row that others see after the commit."""
        self.running[xid].rows.append((Position(xid, self._next_seq), exchange))
        self._next_seq += 1

    def commit(self, xid: int) -> None:
        """Let others see the rows."""
        self.committed |= dict(self.running.pop(xid).rows)

    def rollback(self, xid: int) -> None:
        """Drop the rows before any claim sees them."""
        del self.running[xid]

    @property
    def snapshot(self) -> str:
        """Text of the present snapshot."""
        running = sorted(self.running)
        return f"{running[0] if running else self._next_xid}:{self._next_xid}:{','.join(map(str, running))}"

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Claim as the statement of fresh messages does."""
        del limit_bytes
        assert isinstance(wanted, Fresh)
        snapshot = self.snapshot
        walked = [self._walked(one, wanted.walk) for one in wanted.ranges]
        found = [at for positions, _ in walked for at in positions if self._is_wanted(at, wanted)][:limit]
        self.claimed |= {at: self.committed[at] for at in found}
        batch = self._batch(found) if found else None
        self.meanwhile()
        return Claimed(batch, snapshot, full=len(found) == limit, last=max(found, default=None), bounds=[bound for _, bound in walked])

    def _walked(self, one: Range, walk: int) -> tuple[list[Position], Position | None]:
        """What is looked at in a range, and the first position behind it."""
        inside = sorted(at for at in self.committed if one.after < at and at.xid < min(one.below, self._next_xid))
        return inside[:walk], inside[walk] if len(inside) > walk else None

    def _is_wanted(self, at: Position, wanted: Fresh) -> bool:
        exchange = self.committed[at]
        return at not in self.claimed and exchange not in wanted.excluded and (wanted.only is None or exchange in wanted.only)

    def _batch(self, found: list[Position]) -> Batch:
        return a_batch(*(a_claim(xid=at.xid, seq=at.seq, exchange=self.committed[at]) for at in found))
