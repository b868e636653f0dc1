"""Fixtures: the queue of a fresh database seen through SQL, and stores of relays on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay.claims.cursor import LAST_SEQ, LAST_XID, Cursor
from relay.claims.intake import PAST
from relay.claims.key_bounds import NOWHERE
from relay.engine.policy import Policy
from relay.events import NOBODY, Sink
from relay.message import START, Batch, Claim, Position
from relay.ports import At, Claimed, DuePlace, Fresh, Page, RowLeft, Sought, Wanted
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.postgres.store import Store

PLENTY = 1 << 30
PATIENCE = 60.0
"""Seconds after which what a test waits for does not come any more, on any machine."""
HUNG = "-c statement_timeout=500s"
"""The server cancels a test's own statement that never ends, so that the error names its line.

Otherwise the test would run out of time and name only the event loop.
"""
FIRST = Fresh(Cursor().ranges(), 10_000)
"""From the left, no exchange excluded, and a long way to walk."""
END = Position(LAST_XID, LAST_SEQ)
"""Behind every message."""
Found = list[tuple[Any, ...]]


class Queue:
    """The queue of one database, through a connection of the superuser's."""

    def __init__(self, url: str, connection: psycopg.AsyncConnection[Any]) -> None:
        self.url = url
        self.connection = connection

    async def sql(self, statement: str, *values: object) -> Found:
        """Run a statement and return its rows, none for one without a result."""
        cursor = await self.connection.execute(statement.encode(), values or None)
        return await cursor.fetchall() if cursor.description else []

    async def value(self, statement: str, *values: object) -> Any:
        """Return the only value of a statement."""
        [(value,)] = await self.sql(statement, *values)
        return value

    async def insert(self, count: int = 1, /, **columns: object) -> list[str]:
        """Insert messages in one transaction, by default for the exchange `orders`; return their ids in claim order."""
        columns = {"exchange": "orders", **columns}
        statement = sql.SQL("INSERT INTO queue_message ({}) SELECT {} FROM generate_series(1, {}) RETURNING seq, id::text").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Literal, columns.values())), sql.Literal(count)
        )
        cursor = await self.connection.execute(statement)
        return [id_ for _, id_ in sorted(await cursor.fetchall())]

    async def waiting(self) -> int:
        """Messages in the queue, in any state."""
        return int(await self.value("SELECT count(*) FROM queue_message"))

    async def settled(self, left: int = 0, *, seconds: float = PATIENCE) -> None:
        """Wait until so many messages are left in the queue."""

        async def are_left() -> bool:
            return await self.waiting() == left

        await until(are_left, seconds)

    async def is_held_up(self, name: str = "%") -> bool:
        """A connection of such a name to this database waits for a lock that another one has."""
        waits = "wait_event_type = 'Lock' AND datname = current_database() AND application_name LIKE %s"
        return bool(await self.value(f"SELECT count(*) > 0 FROM pg_stat_activity WHERE {waits}", name))

    async def expire(self, *ids: str) -> None:
        """Let locks have expired ten minutes ago, those of all messages if none is named."""
        where = "id = ANY(%s::uuid[])" if ids else "%s::uuid[] IS NOT NULL AND lock_expires_at IS NOT NULL"
        await self.sql(f"UPDATE queue_message SET lock_expires_at = now() - interval '10 min' WHERE {where}", list(ids))

    async def results(self) -> dict[str, str]:
        """Result in the archive by id."""
        return dict(await self.sql("SELECT id::text, result FROM queue_message_archive"))

    async def archived(self, id_: str) -> dict[str, Any]:
        """Columns of one archived message."""
        return dict(await self.value("SELECT to_jsonb(a) FROM queue_message_archive a WHERE id = %s", id_))

    async def row(self, id_: str) -> dict[str, Any]:
        """Columns of one queued message."""
        return dict(await self.value("SELECT to_jsonb(m) FROM queue_message m WHERE id = %s", id_))


MakeStore = Callable[..., "MadeStore"]


class MadeStore(Store):
    """A store with short ways to claim."""

    async def take(self, wanted: Wanted = FIRST, *, limit: int = 100, limit_bytes: int = PLENTY) -> Claimed:
        """Claim from the left unless something else is wanted."""
        return await self.claim(wanted, limit=limit, limit_bytes=limit_bytes)

    async def batch(self, wanted: Wanted = FIRST, *, limit: int = 100) -> Batch:
        """Claim what must be there."""
        batch = (await self.take(wanted, limit=limit)).batch
        assert batch is not None
        return batch

    async def ids(self, wanted: Wanted = FIRST, *, limit: int = 100) -> list[str]:
        """Claim and return the ids."""
        return ids_of((await self.take(wanted, limit=limit)).batch)

    async def due(self, *, held: Sequence[str] = (), after: DuePlace = PAST) -> Page:
        """One page of the messages whose wait is over, in every lane that is ours."""
        return await self.scan_due(after=after, sought=Sought([*held], [], [*range(64)]))

    async def left(
        self, *, after: Position = START, head: Position = END, held: Sequence[str] = (), heads: Mapping[str, Position] | None = None
    ) -> Page:
        """One page of the scan of the whole queue, in every lane."""
        return await self.scan_left(after=after, head=head, heads=heads or {}, sought=Sought([*held], [], [*range(64)]))

    async def found(self, kind: str = "waiting", *, limit: int = 100, limit_bytes: int = PLENTY, held: Sequence[str] = ()) -> Claimed:
        """Claim what a scan of the whole queue finds of a kind."""
        positions = [one.position for one in (await self.left(held=held)).findings if one.kind == kind]
        return await self.take(At(positions, kind), limit=limit, limit_bytes=limit_bytes)

    async def found_batch(self, kind: str = "waiting") -> Batch:
        """Claim what a scan of the whole queue must find of a kind."""
        batch = (await self.found(kind)).batch
        assert batch is not None
        return batch

    async def found_ids(self, kind: str = "waiting", *, held: Sequence[str] = ()) -> list[str]:
        """Claim what a scan of the whole queue finds of a kind, and return the ids."""
        return ids_of((await self.found(kind, held=held)).batch)

    async def sweep(self) -> tuple[int, int]:
        """Free every lock that is over, as the scrub does."""
        return await self.free_expired([one.position for one in (await self.left()).findings if one.kind == "expired"])

    async def heads(self, *keys: str) -> list[str]:
        """Take lanes, claim the heads of these keys and return their ids."""
        return ids_of((await self.claim_heads(*keys)).batch)

    async def claim_heads(self, *keys: str, lanes: Mapping[int, int] | None = None, limit_bytes: int = PLENTY) -> Claimed:
        """Claim the heads of these keys that are ready, as the owner of the lanes with their epochs."""
        lanes = lanes or await self.keep_lanes()
        _, found = await self.find_heads(keys, [NOWHERE] * len(keys), running=[], paused=[])
        return await self.take(
            At([head.position for head in found.values() if head.kind != "blocked"], "ordered", lanes), limit_bytes=limit_bytes
        )


@asynccontextmanager
async def unchecked(queue: Queue) -> AsyncIterator[None]:
    """Insert an invalid message: as it was before a check was made, or with the triggers switched off."""
    await queue.sql("SET session_replication_role = replica")
    yield
    await queue.sql("RESET session_replication_role")


async def resize(queue: Queue, function: str, before: str, after: str) -> None:
    """Give a function another bound than it has."""
    definition = str(await queue.value("SELECT pg_get_functiondef(%s::regproc)", function))
    assert before in definition
    await queue.sql(definition.replace(before, after))


async def until(probe: Callable[[], Awaitable[bool] | bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds that has no signal, such as counters that a server writes when it likes."""
    async with asyncio.timeout(seconds):
        while not (holds if isinstance(holds := probe(), bool) else await holds):  # noqa: ASYNC110 - there is no signal
            await asyncio.sleep(0.02)


def ids_of(batch: Batch | None) -> list[str]:
    """Ids of a batch in its order, none for no batch."""
    return [claim.id for claim in batch.claims] if batch else []


def lost(*ids: str) -> list[RowLeft]:
    """What a settle or a release says of messages that are not ours any more."""
    return [RowLeft(id_, busy=False) for id_ in ids]


def busy(*ids: str) -> list[RowLeft]:
    """What it says of messages whose rows another session holds."""
    return [RowLeft(id_, busy=True) for id_ in ids]


def positions_of(batch: Batch) -> list[tuple[int, int]]:
    """Positions of a batch in its order."""
    return [(claim.xid, claim.seq) for claim in batch.claims]


def claim_of(batch: Batch, id_: str) -> Claim:
    """One claim of a batch."""
    return next(claim for claim in batch.claims if claim.id == id_)


@pytest.fixture
async def queue(database_url: str) -> AsyncIterator[Queue]:
    """The queue of this test's own database."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=HUNG) as connection:
        yield Queue(database_url, connection)


@pytest.fixture
async def make_store(database_url: str) -> AsyncIterator[MakeStore]:
    """Makes stores of relays on this test's database; they are closed in the end."""
    made: list[Store] = []

    def make(name: str = "relay", policy: Policy | None = None, *, url: str = database_url, emit: Sink = NOBODY) -> MadeStore:
        store = MadeStore(conninfo=url, schema="public", name=name, policy=lambda: policy or Policy(), emit=emit)
        made.append(store)
        return store

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
async def store(make_store: MakeStore) -> MadeStore:
    """The store of a registered relay."""
    store = make_store(f"relay-{os.getpid()}")
    await store.register()
    return store


@pytest.fixture
def upkeep(store: MadeStore) -> PostgresMaintenance:
    """What maintenance asks of the database, in the place of that relay."""
    return PostgresMaintenance(store=store, needs=1, adopt=lambda policy, settings: None)
