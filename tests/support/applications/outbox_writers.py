"""Applications that keep writing to another outbox's table, whatever is done to it meanwhile."""

from __future__ import annotations

import asyncio
import random

import psycopg

from tests.support.applications.other_outboxes import Outbox
from tests.support.broker.topology import Declared
from tests.support.database.queue import until

WRITERS = 4
PAUSE = 0.05
"""Seconds between two transactions of one application, so that an old relay keeps up."""
EACH_PHASE = 20
"""Transactions that commit between two steps, at least."""


class Writers:
    """Applications that insert by the library's statement, in transactions of one to four rows, some of which are rolled back."""

    def __init__(self, url: str, outbox: Outbox, inbox: Declared, chance: random.Random) -> None:
        self._url = url
        self._outbox = outbox
        self._inbox = inbox
        self._chance = chance
        self._done = asyncio.Event()
        self.committed: list[str] = []
        self.transactions = 0

    async def run(self) -> None:
        """Write until `stop`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())

    def stop(self) -> None:
        """End after the transactions that are open."""
        self._done.set()

    async def more(self) -> None:
        """Return when some more transactions have committed, all begun after this call but those that were open."""
        seen = self.transactions
        await until(lambda: self.transactions >= seen + EACH_PHASE)

    async def _write(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            # From the second time on a statement is prepared, as pools do it.
            connection.prepare_threshold = 1
            while not self._done.is_set():
                ids = [await self._insert(connection) for _ in range(self._chance.randint(1, 4))]
                if self._chance.random() < 0.2:
                    await connection.rollback()
                    continue
                await connection.commit()
                self.committed += ids
                self.transactions += 1
                await asyncio.sleep(PAUSE)

    async def _insert(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> str:
        row = self._outbox.row(self._inbox.exchange, self._inbox.routing_key)
        if self._outbox.before:
            await connection.execute(self._outbox.before.encode(), row)
        cursor = await connection.execute(f"{self._outbox.insert} RETURNING {self._outbox.key}".encode(), row)
        [(id_,)] = await cursor.fetchall()
        return str(id_)
