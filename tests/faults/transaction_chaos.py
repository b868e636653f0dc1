"""A producer whose transactions end in every way that PostgreSQL has, and long after they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from tests.support.relays.ledgers import Message, Producer

MANY = 70
"""Subtransactions of one transaction: more than PostgreSQL keeps by name in its snapshots (64)."""
_INSERT = "INSERT INTO queue_message (id, exchange, routing_key) SELECT id, '{exchange}', 'key' FROM unnest('{{{ids}}}'::uuid[]) AS id"
_CAUGHT = "DO $$ BEGIN {insert}; RAISE EXCEPTION 'never mind'; EXCEPTION WHEN raise_exception THEN NULL; END $$"
"""A block that inserts, fails, and is caught: a subtransaction that is aborted."""
Connection = psycopg.AsyncConnection[Any]


class Begun(NamedTuple):
    """A transaction under its name, with what it is to keep."""

    name: str
    kept: Sequence[Message]


class DisorderlyProducer(Producer):
    """It records what is committed or rolled back, and also what was undone within a transaction."""

    async def commit_late(self, connection: Connection, longest: float) -> None:
        """Insert a few messages, wait up to so many seconds, and end: mostly by a commit."""
        begun = self._begin(self._new(self._chance.randint(1, 5)))
        await self._insert(connection, begun.kept)
        await asyncio.sleep(self._chance.uniform(0, longest))  # how late is the disorder
        await self._end(connection, begun, commit=self._chance.random() < 0.9)

    async def entangle(self, connection: Connection) -> None:
        """One transaction with parts that are kept and parts that are undone, ended by a commit or a rollback, in one step or in two."""
        kept, undone = self._new(self._chance.choice([1, 3, MANY])), self._new(3)
        begun = self._begin(kept, undone)
        await connection.execute("SET LOCAL relay.notify = 'off'")  # PREPARE TRANSACTION asks for that
        await self._undo(connection, undone)
        for message in kept:
            async with connection.transaction():
                await self._insert(connection, [message])
        if self._chance.random() < 0.4:
            await self._prepare(connection, begun)
            await asyncio.sleep(self._chance.uniform(0, 0.1))  # how late is the disorder
            await self.finish(connection, begun, commit=self._chance.random() < 0.7)
        else:
            await self._end(connection, begun, commit=self._chance.random() < 0.7)

    async def prepare(self, connection: Connection, count: int) -> Begun:
        """Insert, and prepare to commit or roll back; any session may `finish` it."""
        begun = self._begin(self._new(count))
        await connection.execute("SET LOCAL relay.notify = 'off'")
        await self._insert(connection, begun.kept)
        await self._prepare(connection, begun)
        return begun

    async def finish(self, connection: Connection, begun: Begun, *, commit: bool) -> None:
        """End what was prepared."""
        await connection.set_autocommit(True)
        await connection.execute(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{begun.name}'".encode())
        await connection.set_autocommit(False)
        self._note_end(begun, commit=commit)

    def _new(self, count: int) -> list[Message]:
        return [self._message(ordered=False) for _ in range(count)]

    def _begin(self, kept: Sequence[Message], undone: Sequence[Message] = ()) -> Begun:
        self._transactions += 1
        begun = Begun(f"t{self._transactions}", kept)
        self._journal.note(transaction=begun.name, phase="before", messages=kept, undone=[message["id"] for message in undone])
        return begun

    async def _insert(self, connection: Connection, messages: Sequence[Message]) -> None:
        await connection.execute(self._statement(messages).encode())

    async def _undo(self, connection: Connection, messages: Sequence[Message]) -> None:
        """Insert three messages in three ways that come to nothing: undone savepoint, caught error, kept savepoint in an undone one."""
        first, second, third = messages
        async with connection.transaction(force_rollback=True):
            await self._insert(connection, [first])
        await connection.execute(_CAUGHT.format(insert=self._statement([second])).encode())
        async with connection.transaction(force_rollback=True), connection.transaction():
            await self._insert(connection, [third])

    async def _prepare(self, connection: Connection, begun: Begun) -> None:
        await connection.execute(f"PREPARE TRANSACTION '{begun.name}'".encode())

    async def _end(self, connection: Connection, begun: Begun, *, commit: bool) -> None:
        await (connection.commit() if commit else connection.rollback())
        self._note_end(begun, commit=commit)

    def _note_end(self, begun: Begun, *, commit: bool) -> None:
        self.committed += len(begun.kept) if commit else 0
        self._journal.note(transaction=begun.name, phase="committed" if commit else "rolled_back")

    def _statement(self, messages: Sequence[Message]) -> str:
        return _INSERT.format(exchange=self._exchange, ids=",".join(message["id"] for message in messages))
