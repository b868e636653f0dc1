"""A test's own connection: creates the schema, refuses a database that another program uses, and runs the test's statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from relay.errors import RelayError
from relay.postgres.schema.migrate import migrate
from relay.testing.statements import identifier, statement

LOCK_SECONDS: Final = 5


class TestDatabaseError(RelayError):
    """The database cannot be used for tests; the message says what to do."""

    __test__ = False


class OutboxDatabase:
    """The test's own connection, in autocommit mode; the schema is created on first use.

    Args:
        url: URL of a test database, for the owner of the schema; SQLAlchemy's form with a driver is accepted too.
        schema: the schema of the queue's tables.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url)
        self.schema = schema
        self._connection: psycopg.Connection[Any] | None = None

    def prepare(self) -> None:
        """Create the schema if it is missing, and mark the database as a test database.

        The in-memory broker delivers nothing to RabbitMQ, so a database that another program uses is refused.

        Raises:
            TestDatabaseError: the database is in use, or cannot be reached.
        """
        places = {name: f"{identifier(self.schema)}.{table}" for name, table in _PLACES.items()}
        standing = self.row("read_standing", places)[0]
        # A database that is marked as a test database may have been used by another program later.
        if standing == "marked" and (other := self.row("read_other")[0]):
            raise TestDatabaseError(
                f"The relay {other!r} runs on the queue in the schema {self.schema!r} of this database: stop it, or name a database "
                "that is for tests alone (fixture outbox_database_url)."
            )
        if standing == "marked" and (self.url, self.schema) in _UP_TO_DATE:
            return
        if standing == "unknown" and self.row("read_used")[0]:
            raise TestDatabaseError(
                f"The queue in the schema {self.schema!r} of this database has been used, and not by relay.testing: name a database "
                "that is for tests alone (fixture outbox_database_url), or empty its tables queue_message, queue_message_keyed_row, "
                "queue_message_archive and queue_message_relay if it is one."
            )
        if standing != "unknown":
            # A marked database may have the schema of an older version of this program.
            migrate(self.url, schema=self.schema)
        self.run("create_reader", "grant_reader")
        _UP_TO_DATE.add((self.url, self.schema))

    def clear(self) -> None:
        """Delete all messages, archive rows and rows of relays; settings, schedules and contracts stay.

        Raises:
            TestDatabaseError: another connection has rows of the queue locked.
        """
        self.run("clear", settings={"relay.retention": "on"})

    def row(self, name: str, values: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """The one row of a statement."""
        [row] = self.connection.execute(statement(name, self.schema), values or {}).fetchall()
        return tuple(row)

    def rows(self, name: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of a statement, each as a mapping by column."""
        with self.connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(statement(name, self.schema), values or {}).fetchall()

    def run(self, *names: str, values: Mapping[str, Any] | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Run statements in one transaction with a short lock timeout.

        Raises:
            TestDatabaseError: another connection has rows of the queue locked.
        """
        try:
            with self.connection.transaction():
                for name, value in {"lock_timeout": f"{LOCK_SECONDS}s", **(settings or {})}.items():
                    self.connection.execute("SELECT set_config(%s, %s, true)", (name, value))
                for name in names:
                    self.connection.execute(statement(name, self.schema), values or {})
        except psycopg.errors.LockNotAvailable as error:
            raise TestDatabaseError(
                f"Another connection has held the queue's rows for {LOCK_SECONDS} seconds: commit or roll back what the test has open."
            ) from error

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The open connection.

        Raises:
            TestDatabaseError: the database cannot be reached.
        """
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self.url, autocommit=True, application_name="relay.testing")
            except psycopg.OperationalError as error:
                raise TestDatabaseError(f"The test database does not answer ({' '.join(str(error).split())}).") from error
        return self._connection


_PLACES: Final = {"queue": "queue_message", "mark": "queue_message_testing()"}
_UP_TO_DATE: Final[set[tuple[str, str]]] = set()
"""Test databases that this process has migrated."""
