"""Applications that insert messages in every disorder that PostgreSQL allows."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, NamedTuple

import psycopg


class Writer:
    """One application: transactions of a few inserts, in every disorder that PostgreSQL allows."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], name: str, chance: random.Random) -> None:
        self._connection = connection
        self._name = name
        self._chance = chance
        self.committed: set[str] = set()

    async def write(self, until: float) -> None:
        """Write until the monotonic time."""
        while time.monotonic() < until:
            await self._transaction()

    async def _transaction(self) -> None:
        # Begins the transaction, sometimes with an id long before the first row; without it a savepoint would be the transaction.
        await self._connection.execute("SELECT pg_current_xact_id()" if self._chance.random() < 0.3 else "SELECT 1")
        await self._wait(0.3, 0.05)
        ids: list[str] = []
        for _ in range(self._chance.randint(1, 6)):
            ids += await (self._in_savepoint() if self._chance.random() < 0.2 else self._insert())
            await self._wait(0.2, 0.03)
        await self._wait(0.05, 1.0)
        await self._end(ids)

    async def _insert(self) -> list[str]:
        statement = "INSERT INTO queue_message (exchange, ordering_key) VALUES (%s, %s) RETURNING id::text"
        [exchange] = self._chance.choices(("flood", "orders", "audit"), (6, 1, 1))
        cursor = await self._connection.execute(statement, [exchange, self._key()])
        return [id_ for (id_,) in await cursor.fetchall()]

    def _key(self) -> str | None:
        """The ordering key of the next message."""
        return None

    async def _in_savepoint(self) -> list[str]:
        ids: list[str] = []
        async with self._connection.transaction() as savepoint:
            ids = await self._insert()
            if self._chance.random() < 0.5:
                ids = []
                raise psycopg.Rollback(savepoint)
        return ids

    async def _end(self, ids: list[str]) -> None:
        how = self._chance.random()
        if how < 0.15:
            await self._connection.rollback()
            return
        if how < 0.25:
            await self._prepare()
        else:
            await self._connection.commit()
        self.committed.update(ids)

    async def _prepare(self) -> None:
        await self._connection.execute(f"PREPARE TRANSACTION '{self._name}'".encode())
        await self._connection.set_autocommit(True)
        await self._wait(1.0, 0.2)
        await self._connection.execute(f"COMMIT PREPARED '{self._name}'".encode())
        await self._connection.set_autocommit(False)

    async def _wait(self, share: float, longest: float) -> None:
        if self._chance.random() < share:
            await asyncio.sleep(self._chance.random() * longest)  # random pauses are the disorder


class Written(NamedTuple):
    """When the transaction of a message ran, by one clock, and which of its messages it was."""

    key: str
    began: float
    ended: float
    number: int


class OrderedWriter(Writer):
    """One that gives its messages ordering keys, and remembers when it wrote them."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], name: str, chance: random.Random, *, keys: int) -> None:
        super().__init__(connection, name, chance)
        self._keys = keys
        self._began = 0.0
        self._used: list[str] = []
        self._key_of: dict[str, str] = {}
        self.written: dict[str, Written] = {}

    async def _transaction(self) -> None:
        self._began = time.monotonic()
        await super()._transaction()

    async def _insert(self) -> list[str]:
        ids = await super()._insert()
        self._key_of.update(dict.fromkeys(ids, self._used[-1]))
        return ids

    def _key(self) -> str:
        self._used.append(f"k{self._chance.randrange(self._keys)}")
        return self._used[-1]

    async def _end(self, ids: list[str]) -> None:
        await super()._end(ids)
        ended = time.monotonic()
        for number, id_ in enumerate(ids):
            if id_ in self.committed:
                self.written[id_] = Written(self._key_of[id_], self._began, ended, number)
