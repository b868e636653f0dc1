"""Handlers inside of a transaction: what one writes to the database and the settle of its message commit together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import psycopg

from relay.literals import literal
from relay.message import SUCCESS, Batch, Claim, Outcome, Portion, Position
from relay.policy import Policy
from relay.ports import Row, Settler, Written
from relay.postgres.database import connect
from relay.postgres.parameters import positions_of, results_of
from relay.postgres.pinned import PINNED
from relay.postgres.statements import Statements
from relay.secret import Conninfo
from relay.worker.handler import Handler, call
from relay.worker.message import Message


class LockLostError(Exception):
    """Another worker had taken the message over: what the handler wrote is rolled back."""


class Settled:
    """Positions that a handler's own transaction has settled: nobody settles them again."""

    def __init__(self) -> None:
        self._positions: set[Position] = set()

    def add(self, claim: Claim) -> None:
        """Its message is in the archive."""
        self._positions.add(claim.position)

    def take(self, claim: Claim) -> bool:
        """Whether it is settled; asked once."""
        try:
            self._positions.remove(claim.position)
        except KeyError:
            return False
        return True

    def before(self, settler: Settler) -> Settler:
        """A settler that passes on what is not settled yet."""
        return _Rest(self, settler)


class _Rest:
    """See `Settled.before`."""

    def __init__(self, settled: Settled, settler: Settler) -> None:
        self._settled = settled
        self._settler = settler

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[Written]:
        """See `relay.ports.Settler`."""
        through = [self._settled.take(claim) for claim in portion.claims]
        for ours in (True, False):
            places = [place for place, settled in enumerate(through) if settled is ours]
            if not places:
                continue
            part = _part(portion, places)
            chosen = [outcomes[place] for place in places]
            if ours:
                yield Written(part, chosen, [])
                continue
            async for written in self._settler.settle(batch, part, chosen):
                yield written

    def leave(self) -> None:
        """See `relay.ports.Settler`."""
        self._settler.leave()


def _part(portion: Portion, places: Sequence[int]) -> Portion:
    claims, results, published, confirmed = portion
    return Portion(
        [claims[place] for place in places],
        [results[place] for place in places],
        [published[place] for place in places],
        [confirmed[place] for place in places],
    )


class Transactions:
    """Runs a handler in a transaction of a connection that it gets, and settles its message there.

    Args:
        conninfo: of the inbox's database, where the handler writes too.
        schema: of the inbox.
        name: this worker, for the archive.
        handler: takes the message and the connection.
        settled: told of what is settled.
        policy: the database's policy that holds now.

    """

    def __init__(
        self, *, conninfo: Conninfo, schema: str, name: str, handler: Handler, settled: Settled, policy: Callable[[], Policy]
    ) -> None:
        self._conninfo = conninfo
        self._name = name
        self._handler = handler
        self._settled = settled
        self._policy = policy
        self._settle = Statements(schema)["settle"]
        self._free: list[psycopg.AsyncConnection[Any]] = []

    async def run(self, batch: Batch, claims: Sequence[Claim]) -> None:
        """Handle one message; raises what the handler or the database raises, after which nothing of it is written."""
        [claim] = claims
        connection = await self._connection()
        try:
            async with connection.transaction():
                await call(self._handler, Message(claim), connection)
                await self._write(connection, batch, claim)
        except BaseException:
            await connection.close()
            raise
        self._settled.add(claim)
        self._free.append(connection)

    async def _write(self, connection: psycopg.AsyncConnection[Any], batch: Batch, claim: Claim) -> None:
        """The settle, fenced by the lock token: without the lock there is no commit."""
        rows, policy = [Row(claim, SUCCESS, None, None)], self._policy()
        values = {
            **positions_of(rows), **results_of(rows), "token": batch.token, "handled_by": self._name, "claimed_at": batch.claimed_at,
            "keep_successes": policy.keep_successes, "park_dead_keys": policy.park_dead_keys,
            "published": literal([None]), "confirmed": literal([None]),
        }  # fmt: skip
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._settle, values)
            if await cursor.fetchall():
                raise LockLostError("the lock expired while it was handled; what the handler wrote is rolled back")

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
        connection = await connect(self._conninfo, f"outbox-relay/{self._name} work", prepare_threshold=0)
        for name, value in PINNED.items():
            await connection.execute("SELECT set_config(%s, %s, false)", (name, value), prepare=False)
        return connection

    async def aclose(self) -> None:
        """Close what is free."""
        await asyncio.gather(*(connection.close() for connection in self._free))
