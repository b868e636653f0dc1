"""Fixtures: one PostgreSQL and one RabbitMQ for the session, a fresh database and fresh names for each test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Protocol

import psycopg
import pytest
from aio_pika.abc import AbstractIncomingMessage
from psycopg import sql

from relay import devservers
from relay.devservers.borrowed import database_at
from tests.support.broker.topology import Declared, Topology

Say = Callable[[str], None]
Declare = Callable[..., Awaitable[Declared]]

_ROLES_OF = """
    SELECT r.rolname FROM pg_roles r JOIN pg_shdescription d ON d.objoid = r.oid AND d.classoid = 'pg_authid'::regclass
    WHERE d.description LIKE 'outbox-relay: %%' AND d.description LIKE '%% in database ' || %(database)s
        AND NOT EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid)
"""


class Drain(Protocol):
    """Takes messages off a queue; see `Topology.drain`."""

    def __call__(self, queue: str, count: int | None = None, *, seconds: float = 60) -> Awaitable[list[AbstractIncomingMessage]]:
        """Return the messages."""


def utc_today() -> date:
    """Return the day by which the archive is partitioned."""
    return datetime.now(UTC).date()


class Databases:
    """Makes and drops databases on a server.

    Args:
        url: of the server, for a superuser.
        copy: how PostgreSQL copies a template. FILE_COPY takes half as long, but makes the server write out all changes.
        templates: databases with the schema that exist already, by the day (UTC) of their making.
        today: tells the day.
    """

    def __init__(
        self, url: str, *, copy: str = "FILE_COPY", templates: Mapping[date, str] | None = None, today: Callable[[], date] = utc_today
    ) -> None:
        self._url = url
        self._copied = f"CREATE DATABASE {{}} TEMPLATE {{}} STRATEGY {copy}"
        self._templates = dict(templates or {})
        self._today = today
        self._made: list[str] = []

    def create(self, *, template: str | None = None) -> str:
        """Make a database, as a copy of the template if there is one; return its name."""
        name = f"relay_test_{secrets.token_hex(5)}"
        statement = "CREATE DATABASE {}" if template is None else self._copied
        self._run(statement, name, *([] if template is None else [template]))
        self._made.append(name)
        return name

    def create_migrated(self) -> str:
        """Make a database with the schema, as a copy of one that was migrated today; return its name.

        A migration makes the partitions of its own day, so a run of tests that passes midnight needs a second template.
        """
        today = self._today()
        if today not in self._templates:
            self._templates[today] = self._migrate()
        return self.create(template=self._templates[today])

    def _migrate(self) -> str:
        from relay.postgres.schema.migrate import migrate  # noqa: PLC0415 - tests without a database do not need it

        name = self.create()
        migrate(self.url(name), schema="public")
        return name

    def drop(self, name: str) -> None:
        """Drop a database, every connection to it, and the roles that were made for it, unless a copy of it uses them."""
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        with psycopg.connect(self._url, autocommit=True) as connection:
            for (role,) in connection.execute(_ROLES_OF, {"database": name}).fetchall():
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))
        self._made.remove(name)

    def drop_all(self) -> None:
        """Drop what is left."""
        for name in list(self._made):
            self.drop(name)

    def url(self, name: str) -> str:
        """Return the URL of a database on this server."""
        return database_at(self._url, name)

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Print a line for the person who waits, past the capture of output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)  # noqa: T201

    return show


@pytest.fixture(scope="session")
def postgres_server(say: Say) -> Iterator[devservers.Postgres | devservers.BorrowedPostgres]:
    """One PostgreSQL for all tests that do not harm it."""
    with devservers.postgres(say=say) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server(say: Say) -> Iterator[devservers.RabbitMQ | devservers.BorrowedRabbitMQ]:
    """One RabbitMQ for all tests that do not harm it."""
    with devservers.rabbitmq(say=say) as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: devservers.Postgres | devservers.BorrowedPostgres) -> Iterator[Databases]:
    """Databases on the session's server; all are dropped in the end."""
    borrowed = isinstance(postgres_server, devservers.BorrowedPostgres)
    made = Databases(postgres_server.url, copy="WAL_LOG" if borrowed else "FILE_COPY")
    yield made
    made.drop_all()


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """URL of a fresh database with the schema, for the superuser."""
    name = databases.create_migrated()
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """URL of a fresh, empty database, for the superuser."""
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def unique() -> str:
    """Short beginning for the names of this test's exchanges and queues."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def amqp_url(rabbitmq_server: devservers.RabbitMQ | devservers.BorrowedRabbitMQ) -> str:
    """URL of the vhost that all tests share; use `unique` names in it."""
    return rabbitmq_server.url


@pytest.fixture
def vhost_url(rabbitmq_server: devservers.RabbitMQ | devservers.BorrowedRabbitMQ, unique: str) -> Iterator[str]:
    """URL of a vhost of this test's own, which takes about a second to make."""
    yield rabbitmq_server.add_vhost(unique)
    rabbitmq_server.delete_vhost(unique)


@pytest.fixture
async def topology(amqp_url: str, unique: str) -> AsyncIterator[Topology]:
    """Exchanges and queues of this test in the shared vhost."""
    async with Topology(amqp_url, unique) as made:
        yield made


@pytest.fixture
def declare(topology: Topology) -> Declare:
    """Declare an exchange and a queue bound to it; see `Topology.declare`."""
    return topology.declare


@pytest.fixture
async def inbox(topology: Topology) -> Declared:
    """An exchange and the queue behind it."""
    return await topology.declare()


@pytest.fixture
def drain(topology: Topology) -> Drain:
    """Take messages off a queue; see `Topology.drain`."""
    return topology.drain
