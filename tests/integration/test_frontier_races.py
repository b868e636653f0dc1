"""Nothing is stranded, claimed twice or made up while writers begin early, commit late, roll back and prepare."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from relay import local
from relay.migrate import migrate
from relay.streams import Streams
from tests.support.queue import PLENTY, MadeStore
from tests.support.servers import Say

SECONDS = 8.0
WRITERS = 12
CLAIMERS = 3


@pytest.fixture(scope="module")
def url(say: Say) -> Iterator[str]:
    """A private server on which transactions may be prepared."""
    with local.postgres(say=say, settings=["max_prepared_transactions=50"], private=True) as server:
        migrate(server.url)
        yield server.url


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
        cursor = await self._connection.execute("INSERT INTO queue_message (exchange) VALUES ('orders') RETURNING id::text")
        return [id_ for (id_,) in await cursor.fetchall()]

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
            await asyncio.sleep(self._chance.random() * longest)


async def claim_all(streams: Streams, chance: random.Random, ended: asyncio.Event) -> Counter[str]:
    """Claim in batches of changing size until the writers have ended and nothing is pending or found."""
    claimed: Counter[str] = Counter()
    while True:
        last = ended.is_set()
        batch = await streams.claim(limit=chance.randint(1, 60), limit_bytes=PLENTY)
        if batch:
            claimed.update(claim.id for claim in batch.claims)
        elif last and not streams.pending:
            return claimed
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.005)


@pytest.mark.slow
@pytest.mark.ids("A6", "B3", "C11", "D3")
async def test_every_committed_message_is_claimed_once_and_nothing_else_is(url: str) -> None:
    """Early transactions, sleeps, savepoints, rollbacks and two-phase commits: nothing is lost, claimed twice or made up."""
    seed = int(os.environ.get("FRONTIER_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"FRONTIER_SEED={seed}")  # noqa: T201 - says how to repeat a failure
    chances = iter(range(seed, seed + 100))
    stores = [MadeStore(conninfo=url, schema="public", name=f"claimer-{n}") for n in range(CLAIMERS)]
    ended = asyncio.Event()
    connections = [await psycopg.AsyncConnection.connect(url) for _ in range(WRITERS)]
    writers = [Writer(connection, f"writer-{n}", random.Random(next(chances))) for n, connection in enumerate(connections)]
    async with asyncio.TaskGroup() as tasks:
        claims = [tasks.create_task(claim_all(Streams(store), random.Random(next(chances)), ended)) for store in stores]
        await asyncio.gather(*(writer.write(time.monotonic() + SECONDS) for writer in writers))
        ended.set()
    for store in stores:
        await store.aclose()
    for connection in connections:
        await connection.close()

    claimed = sum((task.result() for task in claims), Counter[str]())
    committed = {id_ for writer in writers for id_ in writer.committed}
    print(f"committed {len(committed)}, claimed {claimed.total()}")  # noqa: T201 - the size of the experiment
    assert len(committed) > 500
    assert {"stranded": set(), "twice": set(), "phantom": set()} == {
        "stranded": committed - {*claimed},
        "twice": {id_ for id_, times in claimed.items() if times > 1},
        "phantom": {*claimed} - committed,
    }
