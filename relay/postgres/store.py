"""The relay's statements: claim, settle, release, renew, and the relay's own row and lanes."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from relay import __version__
from relay.claims.bounds import Bound, Head
from relay.claims.frontier import Frontier
from relay.errors import StoreError
from relay.events import NOBODY, Sink
from relay.literals import literal
from relay.message import START, Batch, Claim, Position
from relay.policy import Policy
from relay.ports import Claimed, Due, Left, Listed, Place, Row, Seen
from relay.postgres.answers import soon
from relay.postgres.database import BY_INDEX, Session
from relay.postgres.lowest import Lowest
from relay.postgres.parameters import at, lock_of, probe
from relay.postgres.settling import Settling
from relay.postgres.shelf import Shelf
from relay.postgres.statements import Statements
from relay.secret import Conninfo

SAFETY = 0.2
"""Share of the lock by which the relay's own deadline is earlier than the database's."""
LEASE = 5.0
"""Seconds that lanes stay ours without a heartbeat, two heartbeats long: the keys of a dead relay soon have an owner again. The order
does not hang on it: what is in flight keeps its lock, and an owner of before is fenced by the epoch."""
QUICK = {"read_contracts", "read_policy", "read_version"}
"""Maintenance statements that wait for nobody, and that nothing slow may hold up."""
WIDTH = len(Claim._fields)


class Store:
    """Runs statements on three connections: one claims and keeps what is claimed, one settles, one does what may take long."""

    def __init__(
        self,
        *,
        conninfo: Conninfo,
        schema: str,
        name: str,
        policy: Callable[[], Policy] = Policy,
        prepare: bool = True,
        emit: Sink = NOBODY,
        leaving: Callable[[], bool] = bool,
        put_back: Callable[[], None] = lambda: None,
        sweep_soonest: float = 1.0,
    ) -> None:
        self._statements = Statements(schema)
        self._sessions = self._make_sessions(conninfo, name, prepare=prepare)
        self._claims, self._settles, self._control = self._sessions
        self._settling = Settling(session=self._settles, control=self._control, statements=self._statements, name=name, policy=policy)
        self._name = name
        self._policy = policy
        self._lowest = Lowest(lambda: policy().lock_seconds, sweep_soonest)
        self._shelf = Shelf(
            session=self._claims, statements=self._statements, locks=self, policy=policy, left_locked=self._lowest.lose,
            put_back=put_back, emit=emit, leaving=leaving,
        )  # fmt: skip
        self._turn = asyncio.Lock()
        self._owed: StoreError | None = None
        self.relay_id = 0

    def _make_sessions(self, conninfo: Conninfo, name: str, *, prepare: bool) -> list[Session]:
        return [
            Session(conninfo, application_name=f"outbox-relay/{name} {role}", prepare=prepare, settings=settings, answer=answer)
            for role, settings, answer in (("claim", BY_INDEX, self._answer), ("settle", BY_INDEX, self._answer), ("control", {}, None))
        ]

    def _answer(self) -> float:
        return soon(self._policy().lock_seconds)

    async def register(self) -> int:
        """Enter this relay into `queue_message_relay`; return its id, which its locks will carry."""
        values = {"name": self._name, "version": __version__, "host": socket.gethostname(), "pid": os.getpid()}
        for session in self._sessions:
            # Also the one that settles: nothing is sent where the server has no connection left for it.
            await session.open()
        [(self.relay_id,)] = await self._control.fetch(self._statements["register_relay"], values)
        self._lowest.told = START
        return self.relay_id

    async def unregister(self, *, holds_locks: bool) -> None:
        """Free the lanes, and leave `queue_message_relay` unless locks still carry the id."""
        await self._control.fetch(self._statements["unregister_relay"], {"relay_id": self.relay_id, "holds_locks": holds_locks})

    async def aclose(self) -> None:
        """Close every connection."""
        for session in self._sessions:
            await session.aclose()

    async def claim(self, due: Due, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Claimed:
        """See `relay.ports.ClaimStore`."""
        policy, pace, token = self._policy(), self._shelf.pace, str(uuid.uuid4())
        values = {
            **where, **lock_of(policy), "limit": limit, "limit_bytes": pace.of_claim(limit_bytes), "large": pace.large,
            "relay_id": self.relay_id, "token": token, "now": None,
        }  # fmt: skip
        owed, self._owed = self._owed, None
        if owed:
            raise owed
        async with self._turn:
            for session in (self._settles, self._claims):
                await session.open()
            tick = time.monotonic()  # What was waited for before is no part of the batch's intervals.
            rows, came = await self._claimed(due.value, values), time.monotonic()
        claims = [Claim._make(row[:WIDTH]) for row in rows] if rows[0][0] is not None else []
        snapshot, found, clock, *reached = rows[0][WIDTH:]
        walked = Position(*reached[0]) if any(reached) and len(claims) == found else None
        exhausted = found < limit and len(claims) == found and not walked
        half = policy.lock_seconds * (1 - SAFETY) / 2
        batch = Batch(token, [], clock, tick, tick + 2 * half, due.value)
        left = {index for index, claim in enumerate(claims) if claim.payload is None}
        unready = left or (claims and came > tick + half)
        whole = await self._completed(claims, left, batch, half=half, room=limit_bytes) if unready else claims
        if claims:
            pace.claimed(came - tick, time.monotonic() - tick, half=half, cut=found > len(claims), room=limit_bytes)
        if not walked and len(whole) == len(claims):
            self._lowest.heard(due.value)
        batch = Batch(token, whole, clock, tick, batch.deadline, due.value, batch.behind)
        return Claimed(batch if whole else None, snapshot, exhausted=exhausted, walked=walked)

    async def _claimed(self, source: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        try:
            rows = await self._claims.fetch(self._statements.claim(source), values)
        except (StoreError, asyncio.CancelledError) as error:
            # It may have got through unheard.
            self._lowest.lose(source)
            if isinstance(error, StoreError) and error.unanswered:
                self._shelf.pace.too_slow()
            raise
        if rows[0][0] is not None:
            self._lowest.took(Position(*rows[0][:2]))
        return rows

    async def claim_low(self, due: Due, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Claimed:
        """See `relay.ports.ClaimStore`."""
        return await self.claim(due, limit=limit, limit_bytes=limit_bytes, where=where)

    async def archive(self, batch: Batch, rows: Sequence[Row], *, again: bool) -> list[Left]:
        """See `relay.ports.SettleStore`."""
        return await self._settling.archive(batch, rows, again=again)

    async def release(self, batch: Batch, rows: Sequence[Row], *, again: bool) -> list[Left]:
        """See `relay.ports.SettleStore`."""
        return await self._settling.release(batch, rows, again=again)

    async def renew(self, batch: Batch, positions: Sequence[tuple[int, int]]) -> int:
        """Move the locks of these positions ahead, and their deadlines with them; return how many are still ours.

        A message whose row another session holds is ours, and keeps its deadline.

        Raises:
            StoreError: nothing may be assumed; the old deadlines hold.
        """
        tick, lock_seconds = time.monotonic(), self._policy().lock_seconds
        values = {
            "xids": literal([xid for xid, _ in positions]), "seqs": literal([seq for _, seq in positions]),
            "token": batch.token, "lock_seconds": lock_seconds, "now": None,
        }  # fmt: skip
        left = await self._claims.fetch(self._statements["renew_locks"], values)
        batch.renewed(positions, tick + lock_seconds * (1 - SAFETY), left={(xid, seq) for xid, seq, _ in left})
        return len(positions) - sum(not busy for *_, busy in left)

    @property
    def unheard(self) -> bool:
        """A claim's answer was lost so lately that what it locked may still be locked, in nobody's hand."""
        return self._lowest.unheard

    def leave_locked(self, source: str) -> None:
        """Something that such a claim locked is in nobody's hand any more."""
        self._lowest.lose(source)

    def swept(self) -> None:
        """A sweep of our own locks came through."""
        self._lowest.swept()

    async def heartbeat(self, *, low: Position, head: Position, top: Position, state: str) -> bool:
        """Tell that this relay lives, how low it may hold locks, and its lowest and highest heads; False if its row is gone.

        No claim comes between.
        """
        async with self._turn:
            values = {
                **at("low", self._lowest.of(low)), **at("head", head), **at("top", top), **at("told", self._lowest.told),
                "state": state, "relay_id": self.relay_id, "now": None,
            }  # fmt: skip
            rows = await self._claims.fetch(self._statements["heartbeat"], values)
            self._lowest.tell()
        if rows:
            self._lowest.told = Position(*rows[0])
        return bool(rows)

    async def keep_lanes(self) -> dict[int, int]:
        """See `relay.claims.lanes.LaneStore`."""
        values = {"relay_id": self.relay_id, "lease_seconds": LEASE, "now": None}
        [(share, lanes, epochs)] = await self._claims.fetch(self._statements["renew_lanes"], values)
        kept = dict(zip(lanes, epochs, strict=True))
        if len(kept) > share:
            for (lane,) in await self._claims.fetch(self._statements["yield_lanes"], {**values, "most": len(kept) - share}):
                del kept[lane]
        elif len(kept) < share:
            kept.update(await self._claims.fetch(self._statements["acquire_lanes"], {**values, "most": share - len(kept)}))
        return kept

    async def reject_unprintable(self) -> None:
        """See `relay.claims.lanes.LaneStore`."""
        await self._control.fetch(self._statements["reject_unprintable"], {})

    async def wake_successors(self, keys: Sequence[str]) -> None:
        """See `relay.claims.lanes.LaneStore`."""
        await self._claims.fetch(self._statements["wake_successors"], {"keys": list(keys)})

    async def list_keys(self, *, lanes: Collection[int], head: Position, pending: Collection[int], most: int) -> Listed:
        """See `relay.claims.lanes.LaneStore`."""
        values = {"lanes": list(lanes), "pending": literal(pending), "most": most, **at("head", head)}
        [(snapshot, keys, more_late, more, xid, seq)] = await self._claims.fetch(self._statements["list_keys"], values)
        return Listed(keys or [], snapshot, None if xid is None else Position(xid, seq), more, more_late)

    async def list_waiting_keys(
        self, *, lanes: Collection[int], held: Sequence[str], after: Place, most: int
    ) -> tuple[list[str], Place | None]:
        """See `relay.claims.lanes.LaneStore`."""
        values = {"lanes": list(lanes), "except": list(held), "after": after.available_at, "seen": after.seen, "most": most, "now": None}
        [(keys, more, available_at, seen)] = await self._claims.fetch(self._statements["list_waiting_keys"], values)
        return keys or [], Place(available_at, seen) if more else None

    async def find_heads(self, keys: Sequence[str], bounds: Sequence[Bound], *, held: Sequence[str]) -> tuple[str, dict[str, Head]]:
        """See `relay.claims.lanes.LaneStore`."""
        rows = await self._claims.fetch(self._statements["find_heads"], probe(keys, bounds, held))
        heads = {keys[place - 1]: Head(Position(xid, seq), *rest) for place, xid, seq, *rest, _ in rows if place}
        return rows[0][-1], heads

    async def look(self, *, fresh: Frontier, apart: Sequence[str], held: Sequence[str], lanes: Collection[int], ordered: Frontier) -> Seen:
        """See `relay.claims.intake.IntakeStore`."""
        values = {
            **at("head", fresh.head), "pending": literal(fresh.pending), "except": list(apart), "held": list(held), "now": None,
            **at("lanes_head", ordered.head), "lanes_pending": literal(ordered.pending), "lanes": list(lanes),
        }  # fmt: skip
        [row] = await self._claims.fetch(self._statements["look"], values)
        return Seen(*row)

    async def run(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a maintenance statement by its name.

        Raises:
            StoreError: it did not get through.
        """
        session = self._claims if name in QUICK else self._control
        return await session.fetch(self._statements[name], values)

    async def _completed(self, claims: Sequence[Claim], left: Collection[int], batch: Batch, *, half: float, room: int) -> list[Claim]:
        """The claims with the payloads that did not travel with them; why one could not be had is raised by the next claim, if not now."""
        with self._lowest.fetching(claims[0].position):
            done = await self._shelf.complete(claims, left, batch, half=half, room=room)
        if done.failure and not done.whole:
            raise done.failure
        self._owed = done.failure
        return done.whole
