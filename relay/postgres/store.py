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
from relay.claims.cursor import Cursor
from relay.claims.key_bounds import KeyBound
from relay.engine.policy import Policy
from relay.errors import NewConnectionError, StoreError
from relay.events import NOBODY, Sink
from relay.message import START, Batch, Claim, Position, Range
from relay.net.secret_url import Conninfo
from relay.ports import NOWHERE, Claimed, DuePlace, Listed, Page, Places, QueueLook, RowLeft, ScanFinding, SettleRow, Sought, Wanted
from relay.postgres.array_literal import literal
from relay.postgres.claiming import ClaimAnswer, Claiming
from relay.postgres.deferred_payloads import DeferredPayloads
from relay.postgres.parameters import at, at_all, heads_of, page_of, probe, ranges_of, trusted, wanted_of
from relay.postgres.refusals import Refusals
from relay.postgres.session import BY_INDEX, IN_ORDER, Session
from relay.postgres.settling import Settling
from relay.postgres.timeouts import soon
from relay.queries.statements import Statements

SAFETY = 0.2
"""Share of the lock by which the relay's own deadline is earlier than the database's."""
LEASE = 5.0
"""Seconds without a heartbeat after which a relay loses its lanes, so that the keys of a dead relay soon have an owner again. The order
does not depend on this time: messages in flight keep their locks, and the epoch fences an earlier owner."""
QUICK = {"read_contracts", "read_policy", "read_version"}
"""Maintenance statements that wait for no other session, and that no slow statement may delay."""
LOOK = 1000
"""Most messages that the inexpensive statement of an idle relay scans."""
PAGE = 10_000
"""Most messages that one page of a scan reads; a page takes some ten milliseconds."""
MAX_FINDINGS = 2000
"""Most messages without a key that one page returns."""
LAG = 2.0
"""Seconds by which scans of waits overlap: a release commits some time after it has read the clock."""


class Store:
    """Runs statements on three connections: one claims and renews, one settles, one runs statements that may take long."""

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
    ) -> None:
        self._statements = Statements(schema)
        self._sessions = self._make_sessions(conninfo, name, prepare=prepare)
        self._claims, self._settles, self._control = self._sessions
        self._settling = Settling(session=self._settles, control=self._control, statements=self._statements, name=name, policy=policy)
        self._name = name
        self._policy = policy
        self._deferred = DeferredPayloads(
            session=self._claims, statements=self._statements, locks=self, policy=policy,
            put_back=put_back, emit=emit, leaving=leaving,
        )  # fmt: skip
        self._refusals = Refusals(emit=emit)
        self._claiming = Claiming(session=self._claims, statements=self._statements, refusals=self._refusals)
        self._owed: StoreError | None = None
        self._xmax = 0
        """xmax of the last claim's snapshot: the next transaction id."""
        self.left_locked = False
        """Whether a message that is not in flight may have this relay's lock: the relay's row must stay until that lock has expired."""
        self.relay_id, self._started_at = 0, ""

    def _make_sessions(self, conninfo: Conninfo, name: str, *, prepare: bool) -> list[Session]:
        return [
            Session(conninfo, application_name=f"outbox-relay/{name} {role}", prepare=prepare, settings=settings, answer=answer)
            for role, settings, answer in (
                ("claim", BY_INDEX, self._answer),
                ("settle", BY_INDEX, self._answer),
                ("control", IN_ORDER, None),
            )
        ]

    def _answer(self) -> float:
        return soon(self._policy().lock_seconds)

    async def register(self) -> int:
        """Enter this relay into `queue_message_relay`; return its id, which its locks will carry."""
        values = {"name": self._name, "version": __version__, "host": socket.gethostname(), "pid": os.getpid()}
        for session in self._sessions:
            # Also the session that settles: nothing is sent if the server has no connection left for this session.
            await session.open()
        [(self.relay_id, self._started_at)] = await self._control.fetch(self._statements["register_relay"], values)
        return self.relay_id

    async def unregister(self, *, holds_locks: bool) -> None:
        """Release the lanes, and delete the row of `queue_message_relay` unless locks still carry the relay's id."""
        values = {"relay_id": self.relay_id, "started_at": self._started_at, "holds_locks": holds_locks}
        await self._control.fetch(self._statements["unregister_relay"], values)

    async def aclose(self) -> None:
        """Close every connection."""
        for session in self._sessions:
            await session.aclose()

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """See `relay.ports.ClaimStore`."""
        policy, pace, token = self._policy(), self._deferred.pace, str(uuid.uuid4())
        statement, where = wanted_of(wanted)
        values = {
            **where, "lock_seconds": policy.lock_seconds, "limit": limit, "limit_bytes": pace.of_claim(limit_bytes), "large": pace.large,
            "relay_id": self.relay_id, "token": token, "now": None,
        }  # fmt: skip
        owed, self._owed = self._owed, None
        if owed:
            raise owed
        for session in (self._settles, self._claims):
            await session.open()
        tick = time.monotonic()  # Earlier waits are no part of the batch's intervals.
        answer, came = await self._claimed(statement, values), time.monotonic()
        self._compare(answer.snapshot)
        claims, found = answer.claims, answer.found
        half = policy.lock_seconds * (1 - SAFETY) / 2
        batch = Batch(token, [], answer.clock, tick, tick + 2 * half, wanted.source)
        left = {index for index, claim in enumerate(claims) if claim.payload is None or claim.options == b""}
        unready = left or (claims and came > tick + half)
        whole = await self._completed(claims, left, batch, half=half, room=limit_bytes) if unready else claims
        batch, cut = Batch(token, whole, answer.clock, tick, batch.deadline, wanted.source, batch.behind), found > len(claims)
        if claims:
            pace.claimed(came - tick, time.monotonic() - tick, half=half, cut=cut, room=limit_bytes, size=batch.size)
        return Claimed(
            batch if whole else None, answer.snapshot, full=found + len(answer.refused) >= limit or cut,
            last=answer.last, bounds=answer.bounds, refused=answer.refused,
        )  # fmt: skip

    def _compare(self, snapshot: str) -> None:
        """Forget positions if a transaction id is lower than before: a pooler has then switched to a standby that was behind."""
        before, self._xmax = self._xmax, int(snapshot.split(":")[1])
        if self._xmax < before:
            self._claims.forget_positions()

    async def _claimed(self, statement: str, values: Mapping[str, Any]) -> ClaimAnswer:
        try:
            return await self._claiming.claim(statement, values)
        except NewConnectionError:
            raise  # nothing was run
        except (StoreError, asyncio.CancelledError) as error:
            # The claim may have been committed although the answer was lost: its messages become free when the lock expires.
            self.left_locked = True
            if isinstance(error, StoreError) and error.unanswered:
                self._deferred.pace.unanswered()
            raise

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """See `relay.ports.SettleStore`."""
        return await self._settling.archive(batch, rows, again=again)

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """See `relay.ports.SettleStore`."""
        return await self._settling.release(batch, rows, again=again)

    async def renew(self, batch: Batch, positions: Sequence[tuple[int, int]]) -> int:
        """Extend the locks of these positions and their deadlines; return how many this relay still holds.

        If another session has locked a message's row, or a trigger refuses its UPDATE, the lock counts as held and its deadline stays.

        Raises:
            StoreError: the outcome is unknown; the old deadlines remain valid.
        """
        tick, lock_seconds = time.monotonic(), self._policy().lock_seconds
        left = await self._renewed(positions, {"token": batch.token, "lock_seconds": lock_seconds, "now": None})
        batch.renewed(positions, tick + lock_seconds * (1 - SAFETY), left={(xid, seq) for xid, seq, _ in left})
        return len(positions) - sum(not busy for *_, busy in left)

    async def _renewed(self, positions: Sequence[tuple[int, int]], values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Renew as many locks as possible. Halving finds a row that a trigger refuses; such a row counts as locked by another session."""
        where = {"xids": literal([xid for xid, _ in positions]), "seqs": literal([seq for _, seq in positions])}
        try:
            return await self._claims.fetch(self._statements["renew_locks"], {**values, **where})
        except StoreError as error:
            if not error.refused:
                raise
        if len(positions) == 1:
            return [(*positions[0], True)]
        middle = len(positions) // 2
        return [one for half in (positions[:middle], positions[middle:]) for one in await self._renewed(half, values)]

    def leave_locked(self) -> None:
        """Note that a claimed message keeps its lock although it is no longer in flight."""
        self.left_locked = True

    async def heartbeat(self, state: str, places: Places = NOWHERE) -> bool:
        """Report that this relay is alive, with its state and places; False if its row is missing, or belongs to another relay."""
        where = {**at("low", places.low), **at("head", places.head), **at("top", places.top)}
        values = {"state": state, "relay_id": self.relay_id, "started_at": self._started_at, "now": None, **where}
        return bool(await self._claims.fetch(self._statements["heartbeat"], values))

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

    async def list_keys(self, *, lanes: Sequence[int], ranges: Sequence[Range], walk: int) -> Listed:
        """See `relay.claims.lanes.LaneStore`."""
        values = {"lanes": list(lanes), "walk": walk, **ranges_of(ranges)}
        rows = await self._claims.fetch(self._statements["list_keys"], values, by_position=True)
        *_, snapshot, xid, seq = rows[0]
        keys = {key: (lane, Position(*first)) for key, lane, *first, _, _, _ in rows if key is not None}
        return Listed(keys, snapshot, None if xid is None else Position(xid, seq))

    async def find_heads(
        self, keys: Sequence[str], bounds: Sequence[KeyBound], *, running: Sequence[int], paused: Sequence[str]
    ) -> tuple[str, dict[str, ScanFinding]]:
        """See `relay.claims.lanes.LaneStore`."""
        rows = await self._claims.fetch(self._statements["find_heads"], probe(keys, bounds, running, paused), by_position=True)
        policy = self._policy()
        heads: dict[str, ScanFinding] = {}
        for place, xid, seq, lane, ready, exchange, suspect, attempts, _ in rows:
            if place:
                kind = "blocked" if not ready else "suspect" if suspect else "key"
                key = keys[place - 1]
                heads[key] = ScanFinding(kind, Position(xid, seq), exchange, key, lane, trusted(attempts, policy))
        return rows[0][-1], heads

    async def look(self, *, fresh: Cursor, after: str, paused: Sequence[str], lanes: Collection[int], ordered: Cursor) -> QueueLook:
        """See `relay.claims.intake.IntakeStore`."""
        values = {
            **at("head", fresh.head), "pending": literal(fresh.late), "after": after, "held": list(paused), "walk": LOOK, "now": None,
            **at("lanes_head", ordered.head), "lanes_pending": literal(ordered.late), "lanes": list(lanes),
        }  # fmt: skip
        [row] = await self._claims.fetch(self._statements["look"], values, by_position=True)
        return QueueLook(*row)

    async def scan_due(self, *, after: DuePlace, sought: Sought) -> Page:
        """See `relay.claims.intake.IntakeStore`."""
        where = {"after": after.time, **at("from", after.position), **heads_of(START, {})}
        return await self._scan(self._claims, "due", where, sought)

    async def scan_left(self, *, after: Position, head: Position, heads: Mapping[str, Position], sought: Sought) -> Page:
        """See `relay.claims.scrub.ScrubStore`."""
        return await self._scan(self._control, "left", {**at("from", after), **heads_of(head, heads)}, sought)

    async def _scan(self, session: Session, name: str, where: Mapping[str, object], sought: Sought) -> Page:
        policy = self._policy()
        values = {
            **where, **sought._asdict(), "walk": PAGE, "most": MAX_FINDINGS, "lag": LAG, "lock_seconds": policy.lock_seconds, "now": None,
        }  # fmt: skip
        rows = await session.fetch(self._statements.scan(name), values, by_position=session is self._claims)
        return page_of(rows, policy)._replace(seconds=session.took)

    async def free_expired(self, positions: Sequence[Position]) -> tuple[int, int]:
        """See `relay.claims.scrub.ScrubStore`."""
        [(released, archived, refused)] = await self._control.fetch(self._statements["free_expired"], {**at_all(positions), "now": None})
        self._refusals.report(refused)
        return released, archived

    async def run(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a maintenance statement by its name.

        Raises:
            StoreError: the statement failed.
        """
        session = self._claims if name in QUICK else self._control
        return await session.fetch(self._statements[name], values)

    async def _completed(self, claims: Sequence[Claim], left: Collection[int], batch: Batch, *, half: float, room: int) -> list[Claim]:
        """The claims with all payloads. A failed fetch is raised now if no message is left to send, and otherwise by the next claim."""
        try:
            done = await self._deferred.complete(claims, left, batch, half=half, room=room)
        except BaseException:
            self.leave_locked()
            raise
        if done.failed:
            self.leave_locked()
        if done.failure and not done.whole:
            raise done.failure
        self._owed = done.failure
        return done.whole
