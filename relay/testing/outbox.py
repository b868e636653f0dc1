"""An application's outbox in tests: enqueued, waiting and settled messages, and a relay that sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack
from uuid import UUID

from relay.testing.clock import Clock
from relay.testing.database import OutboxDatabase
from relay.testing.drivers import read, read_async
from relay.testing.messages import ArchivedMessage, Expected, Messages, Queued
from relay.testing.relays import START_SECONDS, RelayInTest, Running

_HINT: Final = "Is it the connection that the application writes on, before its commit?"


class Outbox:
    """The outbox of the application under test; use the fixture `outbox`, or without pytest a `with` statement.

    Args:
        url: URL of the test database, for the owner of the schema.
        schema: the schema of the queue's tables (RELAY_SCHEMA).

    Raises:
        TestDatabaseError: at the first use, if another program uses the database.
    """

    def __init__(self, url: str, *, schema: str = "public") -> None:
        self._database = OutboxDatabase(url, schema)
        self._running: list[Running] = []
        self.clock = Clock(self._database, running=self._ids, before=self._forget, passed=self._look)

    def __enter__(self) -> Self:
        """Create the schema if it is missing, and delete all messages."""
        try:
            self._database.prepare()
            self._database.clear()
        except BaseException:
            self._database.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connection. The rows stay until the next test, so that they can be inspected."""
        self._database.close()

    @property
    def schema(self) -> str:
        """The schema of the queue's tables."""
        return self._database.schema

    def enqueued(self, connection: Any) -> Messages:
        """The messages that a connection's open transaction has enqueued, in the order of the INSERTs.

        Args:
            connection: a connection, cursor or session of psycopg, SQLAlchemy or Django, on which the application has written.
        """
        return _here(read(connection, "read_enqueued", self.schema))

    async def enqueued_async(self, connection: Any) -> Messages:
        """The same as `enqueued`, for async connections and sessions of psycopg and SQLAlchemy, and for connections of asyncpg."""
        return _here(await read_async(connection, "read_enqueued", self.schema))

    def assert_enqueued(self, connection: Any, **expected: Unpack[Expected]) -> Queued:
        """The first matching message of the open transaction; see `Messages.assert_has`.

        Raises:
            AssertionError: no message matches; the error says how the closest message differs, and lists all messages.
        """
        __tracebackhide__ = True
        return self.enqueued(connection).assert_has(**expected)

    def assert_not_enqueued(self, connection: Any, **expected: Unpack[Expected]) -> None:
        """Assert that the open transaction has enqueued no matching message.

        Without expectations, assert that it has enqueued no message at all.

        Raises:
            AssertionError: a message matches; the error lists all messages.
        """
        __tracebackhide__ = True
        self.enqueued(connection).assert_lacks(**expected)

    async def assert_enqueued_async(self, connection: Any, **expected: Unpack[Expected]) -> Queued:
        """The same as `assert_enqueued`, for async connections and sessions."""
        __tracebackhide__ = True
        return (await self.enqueued_async(connection)).assert_has(**expected)

    async def assert_not_enqueued_async(self, connection: Any, **expected: Unpack[Expected]) -> None:
        """The same as `assert_not_enqueued`, for async connections and sessions."""
        __tracebackhide__ = True
        (await self.enqueued_async(connection)).assert_lacks(**expected)

    def waiting(self) -> Messages:
        """Committed messages that are not settled, in the order of their transactions and, within a transaction, of its INSERTs."""
        rows = json.loads(self._database.row("read_waiting")[0])
        return Messages(map(Queued.of, rows), title="Committed and waiting", hint="Has the application committed?")

    def archive(self, message: UUID | str) -> ArchivedMessage | None:
        """The archived message; None if the message is not settled yet."""
        found = self._database.rows("read_archived", {"id": str(message)})
        return _archived(found[0]) if found else None

    def clear(self) -> None:
        """Delete all messages in queue and archive. The fixture calls this method before each test.

        Raises:
            TestDatabaseError: another connection has locked rows of the queue.
        """
        self._database.clear()

    def relay(self, *, start_seconds: float = START_SECONDS) -> RelayInTest:
        """The relay with an in-memory broker: `with outbox.relay() as broker:`, or `async with`; `start_seconds` limits its start."""
        return RelayInTest(self._database, waiting=self.waiting, running=self._running, start_seconds=start_seconds)

    def _ids(self) -> list[int]:
        return [one.relay_id for one in self._running]

    def _forget(self) -> None:
        for one in self._running:
            one.forget()

    def _look(self) -> None:
        for one in self._running:
            one.look()


def _here(text: str) -> Messages:
    return Messages(map(Queued.of, json.loads(text)), title="This transaction has enqueued", hint=_HINT)


def _archived(row: Mapping[str, Any]) -> ArchivedMessage:
    return ArchivedMessage(**{**row, "content": json.loads(row["content"]), "options": json.loads(row["options"])})
