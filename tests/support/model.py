"""A queue in memory with transactions that begin, commit and roll back in any order: the rules of visibility, and no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relay.message import Batch, Position
from relay.ports import Claimed, Due
from tests.support.fakes import a_batch, a_claim

WALKS = {Due.OTHERS_ABOVE_HEAD, Due.OTHERS_PENDING, Due.EXCHANGE_ABOVE_HEAD, Due.EXCHANGE_PENDING}


@dataclass
class Transaction:
    """One writer; it has an xid from its first write on."""

    xid: int
    rows: list[tuple[Position, str]] = field(default_factory=list)


class ModelQueue:
    """What claims see: rows of committed transactions that nobody has claimed."""

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
        """Let nobody see the rows."""
        del self.running[xid]

    @property
    def snapshot(self) -> str:
        """Text of the present snapshot."""
        running = sorted(self.running)
        return f"{running[0] if running else self._next_xid}:{self._next_xid}:{','.join(map(str, running))}"

    async def claim(self, due: Due, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Claimed:
        """Claim as the statements do."""
        del limit_bytes
        snapshot, walk = self.snapshot, int(str(where["walk"]))
        placed = sorted(at for at in self.committed if _placed(due, at, where))
        walked = placed[:walk] if due in WALKS else placed
        ready = [at for at in walked if at not in self.claimed and _wanted(self.committed[at], where)]
        found = ready[:limit]
        full = due in WALKS and len(walked) == walk and len(found) < limit
        self.claimed |= {at: self.committed[at] for at in found}
        batch = self._batch(found) if found else None
        self.meanwhile()
        return Claimed(batch, snapshot, exhausted=len(found) < limit and not full, walked=walked[-1] if full else None)

    async def claim_low(self, due: Due, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Claimed:
        """As `claim`."""
        return await self.claim(due, limit=limit, limit_bytes=limit_bytes, where=where)

    def _batch(self, found: list[Position]) -> Batch:
        return a_batch(*(a_claim(xid=at.xid, seq=at.seq, exchange=self.committed[at]) for at in found))


def _placed(due: Due, at: Position, where: Mapping[str, object]) -> bool:
    if due in {Due.ABOVE_HEAD, Due.OTHERS_ABOVE_HEAD, Due.EXCHANGE_ABOVE_HEAD}:
        return at > Position(int(str(where["head_xid"])), int(str(where["head_seq"])))
    xids, seqs = (map(int, str(where[name]).strip("{}").split(",")) for name in ("pending", "reached"))
    reached = dict(zip(xids, seqs, strict=True))
    return at.xid in reached and (due not in WALKS or at.seq > reached[at.xid])


def _wanted(exchange: str, where: Mapping[str, object]) -> bool:
    left_out = where.get("except", ())
    assert isinstance(left_out, list | tuple)
    return exchange not in left_out and exchange == where.get("exchange", exchange)
