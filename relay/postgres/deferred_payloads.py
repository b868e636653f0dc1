"""Reads payloads and options that the claim statement left out, renews their locks, and releases messages that cannot be handed on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from relay.codec.option_rules import LONGEST
from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.events import LockLost, Sink
from relay.message import Batch, Claim, GiveBack
from relay.ports import RowLeft, SettleRow
from relay.postgres.payload_fetcher import Completed, Fetcher, Pace, Piece
from relay.postgres.session import Session
from relay.queries.statements import Statements


class Locks(Protocol):
    """Renews and releases the locks of claimed messages."""

    async def renew(self, batch: Batch, positions: Sequence[tuple[int, int]]) -> int:
        """Extend the locks of these positions; return how many this relay still holds. May raise StoreError."""

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Return rows to the queue; return the rows that were not written. May raise StoreError."""

    def leave_locked(self) -> None:
        """Note that a message keeps its lock although it is no longer in flight."""


class DeferredPayloads:
    """Completes claims with their missing payloads and options.

    Args:
        session: reads payloads piece by piece; other statements run in between.
        statements: the relay's SQL.
        locks: renews and releases locks.
        policy: says how large a payload may be, and how long a lock lasts.
        put_back: called if messages that are due at once may have been released.
        emit: sink of events about lost locks.
        leaving: whether the relay shuts down, so that messages without their payload are released.

    """

    def __init__(
        self,
        *,
        session: Session,
        statements: Statements,
        locks: Locks,
        policy: Callable[[], Policy],
        put_back: Callable[[], None],
        emit: Sink,
        leaving: Callable[[], bool],
    ) -> None:
        self._session = session
        self._statements = statements
        self._locks = locks
        self._policy = policy
        self._on_put_back = put_back
        self._emit = emit
        self._leaving = leaving
        self.pace = Pace()

    async def complete(self, claims: Sequence[Claim], left: Collection[int], batch: Batch, *, half: float, room: int) -> Completed:
        """Fetch the missing payloads; see `relay.postgres.payload_fetcher`. Moves the batch's deadline.

        Args:
            claims: the claims that the statement returned.
            left: indexes of the claims without payload or options.
            batch: the batch with the token and deadline of these claims.
            half: half of the time until that deadline, in seconds.
            room: bytes of memory that all claims together may take.

        """
        done = await self._fetcher(batch, half=half, room=room).complete(claims, left)
        await self._put_back(done, batch)
        return done

    def _fetcher(self, batch: Batch, *, half: float, room: int) -> Fetcher:
        async def read(claim: Claim, start: int, length: int) -> Piece | None:
            where = {"xid": str(claim.xid), "seq": claim.seq, "token": batch.token}
            values = {**where, "start": start, "length": length, "longest": LONGEST + 1}
            rows = await self._session.fetch(self._statements["read_payload"], values)
            return Piece._make(rows[0]) if rows else None

        async def renew(claims: Sequence[Claim]) -> bool:
            return await self._locks.renew(batch, [(claim.xid, claim.seq) for claim in claims]) == len(claims)

        most = self._policy().max_body_bytes
        return Fetcher(
            read=read, renew=renew, pace=self.pace, most=most, room=room, half=half, since=batch.claimed_tick, leaving=self._leaving
        )

    async def _put_back(self, done: Completed, batch: Batch) -> None:
        """Release messages that are not handed on, due at once. A message that cannot be read stays locked, so its attempt counts.

        A message that PostgreSQL itself cannot print is released too, with that reason; a later statement archives this message.
        """
        rows = [SettleRow(claim, GiveBack("", ""), None, None) for claim in done.back]
        if done.failed and done.failure and done.failure.unprintable:
            rows.append(SettleRow(done.failed, GiveBack("content_unprintable", str(done.failure)), None, None))
        lost = [claim.id for claim in done.lost]
        try:
            left = await self._locks.release(batch, rows, again=False) if rows else []
        except StoreError:
            left = [RowLeft(row.claim.id, busy=True) for row in rows]
        if any(one.busy for one in left):
            # These messages become free when their locks expire.
            self._locks.leave_locked()
        lost += [one.id for one in left if not one.busy]
        if rows:
            # Also if the answer was lost. Released messages are no longer fresh, so a claim of fresh messages would not find them.
            self._on_put_back()
        if lost:
            self._emit(LockLost(tuple(lost)))
