"""A queue in memory and one in PostgreSQL behind the same few methods: what holds for stores is shown on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import psycopg

from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.message import Position
from tests.simulation.claims import Found, source_of
from tests.simulation.database import BlockedError, Database, Row, Transaction
from tests.simulation.server import CARRIED_OUT, NAMES
from tests.simulation.sweeps import skip_key
from tests.support.database.queue import MadeStore, MakeStore, Queue


class Standing(NamedTuple):
    """The state of a message in the queue."""

    attempts: int
    locked: bool
    waits: bool
    locked_by: int | None


class Place(Protocol):
    """A queue, and relays' stores on it."""

    async def insert(self, count: int = 1, /, **columns: Any) -> list[str]:
        """Insert messages in one transaction; return their ids in claim order. `wait` is in seconds from now."""

    def writing(self, **columns: Any) -> Any:
        """A message in a transaction that commits when the block ends; yields its id."""

    def holding(self, id_: str) -> Any:
        """Keep a message locked by another transaction."""

    async def expire(self, *ids: str) -> None:
        """Let locks have expired."""

    async def newest(self) -> Position:
        """The highest position of all messages."""

    async def results(self) -> dict[str, str]:
        """Result in the archive by id."""

    async def standing(self, id_: str) -> Standing:
        """The state of a message."""

    async def put(self, setting: str, value: str) -> None:
        """Change a setting."""

    async def park(self, key: str) -> None:
        """Park an ordering key."""

    async def skip(self, key: str) -> bool:
        """Skip the head of an ordering key; False where that is refused."""

    async def pause(self, exchange: str) -> None:
        """Pause an exchange."""

    async def silence(self, relay: int, seconds: float) -> None:
        """Let a relay's last heartbeat be so long ago."""

    async def store(self, name: str = "relay", policy: Policy | None = None) -> MadeStore:
        """The store of a registered relay."""


class Postgres:
    """A queue in PostgreSQL."""

    def __init__(self, queue: Queue, make_store: MakeStore) -> None:
        self._queue = queue
        self._make_store = make_store

    async def insert(self, count: int = 1, /, **columns: Any) -> list[str]:
        """See `Place`."""
        wait = columns.pop("wait", None)
        if wait is not None:
            columns["available_at"] = await self._queue.value("SELECT now() + make_interval(secs => %s)", wait)
        return await self._queue.insert(count, **columns)

    @asynccontextmanager
    async def writing(self, **columns: Any) -> AsyncIterator[str]:
        """See `Place`."""
        async with await psycopg.AsyncConnection.connect(self._queue.url) as connection:
            writer = Queue(self._queue.url, connection)
            [id_] = await writer.insert(**columns)
            yield id_

    @asynccontextmanager
    async def holding(self, id_: str) -> AsyncIterator[None]:
        """See `Place`."""
        async with await psycopg.AsyncConnection.connect(self._queue.url) as connection:
            await connection.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [id_])
            yield

    async def expire(self, *ids: str) -> None:
        """See `Place`."""
        await self._queue.expire(*ids)

    async def newest(self) -> Position:
        """See `Place`."""
        [(xid, seq)] = await self._queue.sql("SELECT xid::text::bigint, seq FROM queue_message ORDER BY xid DESC, seq DESC LIMIT 1")
        return Position(xid, seq)

    async def results(self) -> dict[str, str]:
        """See `Place`."""
        return await self._queue.results()

    async def standing(self, id_: str) -> Standing:
        """See `Place`."""
        row = await self._queue.row(id_)
        return Standing(row["attempts"], row["lock_token"] is not None, row["available_at"] is not None, row["locked_by"])

    async def put(self, setting: str, value: str) -> None:
        """See `Place`."""
        await self._queue.sql("SELECT queue_message_config_set(%s, %s)", setting, value)

    async def park(self, key: str) -> None:
        """See `Place`."""
        await self._queue.sql("SELECT queue_message_key_park(%s)", key)

    async def skip(self, key: str) -> bool:
        """See `Place`."""
        try:
            await self._queue.sql("SELECT queue_message_key_skip(%s)", key)
        except (psycopg.errors.NoDataFound, psycopg.errors.ObjectInUse):
            return False
        return True

    async def pause(self, exchange: str) -> None:
        """See `Place`."""
        await self._queue.sql("SELECT queue_message_pause(%s)", exchange)

    async def silence(self, relay: int, seconds: float) -> None:
        """See `Place`."""
        await self._queue.sql(
            "UPDATE queue_message_relay SET heartbeat_at = now() - make_interval(secs => %s) WHERE id = %s", seconds, relay
        )

    async def store(self, name: str = "relay", policy: Policy | None = None) -> MadeStore:
        """See `Place`."""
        store = self._make_store(name, policy)
        await store.register()
        assert isinstance(store, MadeStore)
        return store


class DirectSession:
    """Carries out statements on a database in memory, each at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.took = 0.0

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def fetch(self, statement: bytes, values: Mapping[str, Any], *, by_position: bool = False) -> Found:
        """Run one statement; there is one server for ever."""
        del by_position
        tx = self._database.begin()
        try:
            found = CARRIED_OUT[source_of(NAMES[statement], values)](self._database, tx, values)
        except BaseException as error:
            tx.rollback()
            if isinstance(error, BlockedError):
                raise StoreError("Another session holds a lock.", in_passing=True) from error
            raise
        tx.commit()
        return found


class Unwatched:
    """A watch that checks no promises."""

    def committed(self, row: Row) -> None:
        """See `Watch`."""

    def locked(self, row: Row, relay: int) -> None:
        """See `Watch`."""

    def fenced(self, row: Row, token: object) -> None:
        """See `Watch`."""

    def expired(self, row: Row) -> None:
        """See `Watch`."""

    def archived(self, row: Row, result: str) -> None:
        """See `Watch`."""


class Memory:
    """A queue in memory."""

    def __init__(self) -> None:
        self._database = Database(lambda: 1000.0, Unwatched())
        self._database.settings["lock_seconds"] = "30"
        self._count = 0

    async def insert(self, count: int = 1, /, **columns: Any) -> list[str]:
        """See `Place`."""
        tx = self._database.begin()
        ids = [self._insert(tx, columns) for _ in range(count)]
        tx.commit()
        return ids

    def _insert(self, tx: Transaction, columns: Mapping[str, Any]) -> str:
        self._count += 1
        row = Row(f"{self._count:08x}-0000-7000-8000-000000000000", columns.get("exchange", "orders"), key=columns.get("ordering_key"))
        row.available_at = self._database.now() + columns["wait"] if "wait" in columns else None
        row.size = len(columns.get("body", b"{}"))
        tx.insert(row)
        return row.id

    @asynccontextmanager
    async def writing(self, **columns: Any) -> AsyncIterator[str]:
        """See `Place`."""
        tx = self._database.begin()
        yield self._insert(tx, columns)
        tx.commit()

    @asynccontextmanager
    async def holding(self, id_: str) -> AsyncIterator[None]:
        """See `Place`."""
        tx = self._database.begin()
        tx.hold(self._row(id_))
        yield
        tx.rollback()

    def _row(self, id_: str) -> Row:
        return next(row for row in self._database.rows.values() if row.id == id_)

    async def expire(self, *ids: str) -> None:
        """See `Place`."""
        for row in self._database.locked():
            if not ids or row.id in ids:
                row.lock_expires_at = self._database.now() - 600

    async def newest(self) -> Position:
        """See `Place`."""
        return Position(*self._database.order[-1])

    async def results(self) -> dict[str, str]:
        """See `Place`."""
        return {id_: archived.result for id_, archived in self._database.archive.items()}

    async def standing(self, id_: str) -> Standing:
        """See `Place`."""
        row = self._row(id_)
        return Standing(row.attempts, row.lock_token is not None, row.available_at is not None, row.locked_by)

    async def put(self, setting: str, value: str) -> None:
        """See `Place`."""
        self._database.settings[setting] = value

    async def park(self, key: str) -> None:
        """See `Place`."""
        self._database.parked[key] = None

    async def skip(self, key: str) -> bool:
        """See `Place`."""
        tx = self._database.begin()
        skipped = skip_key(self._database, tx, key)
        tx.commit()
        return skipped

    async def pause(self, exchange: str) -> None:
        """See `Place`."""
        self._database.paused[exchange] = None

    async def silence(self, relay: int, seconds: float) -> None:
        """See `Place`."""
        self._database.relays[relay].heartbeat_at = self._database.now() - seconds

    async def store(self, name: str = "relay", policy: Policy | None = None) -> MadeStore:
        """See `Place`."""
        store: Any = MadeStore(conninfo="", schema="public", name=name, policy=lambda: policy or Policy())
        store._claims = store._settles = store._control = session = DirectSession(self._database)
        store._claiming._session = store._settling._session = store._settling._control = session
        store._sessions = [session]
        await store.register()
        return store  # type: ignore[no-any-return]
