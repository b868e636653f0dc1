"""What a transaction has enqueued, as relay.testing reads it on the application's own connection, whatever library that is of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import connection as django_connection
from django.db import transaction
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from relay.client import JsonText, Message, Options, enqueue, enqueue_async
from relay.integrations import asyncpg as by_asyncpg
from relay.integrations import django as by_django
from relay.integrations import sqlalchemy as by_sqlalchemy
from relay.postgres.schema.migrate import migrate
from relay.testing.messages import Messages
from relay.testing.outbox import Outbox
from tests.support.applications.libraries import django_on, sqlalchemy_url
from tests.support.servers.logins import login

TIME, LATER = datetime(2031, 1, 31, 12, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)
FULL = Message(
    exchange="orders", routing_key="p\N{LATIN SMALL LETTER A WITH DIAERESIS}:id %s",
    content=JsonText('{"total": 1.5, "text": "\\" :x %s"}'),
    options=Options(priority=3, headers={"a": [1, None]}), ordering_key="customer-7", available_at=TIME, expires_at=LATER, id=UUID(int=7),
)  # fmt: skip
BINARY = Message(exchange="", body=b"\x00\xff", id=UUID(int=8))


@pytest.fixture
def outbox(database_url: str) -> Iterator[Outbox]:
    """As an application has it from the plugin."""
    with Outbox(database_url) as made:
        yield made


def _whole(found: Messages) -> None:
    """FULL and BINARY, with every field."""
    full, binary = found
    assert (FULL.id, "orders", FULL.routing_key, "customer-7") == (full.id, full.exchange, full.routing_key, full.ordering_key)
    assert ({"total": 1.5, "text": '" :x %s'}, None) == (full.content, full.body)
    assert ({"priority": 3, "headers": {"a": [1, None]}}, {"a": [1, None]}) == (full.options, full.headers)
    assert (TIME, LATER, "delayed", 0) == (full.available_at, full.expires_at, full.state, full.attempts)
    assert (b"\x00\xff", "", "ready", {}) == (binary.body, binary.exchange, binary.state, binary.headers)


@pytest.mark.parametrize("kind", ["connection", "cursor", "dictionaries"])
def test_psycopg_sees_its_open_transaction(outbox: Outbox, database_url: str, kind: str) -> None:
    """Whatever rows the application's cursors make; and nothing is left of it after a rollback."""
    with psycopg.connect(database_url, row_factory=dict_row if kind == "dictionaries" else psycopg.rows.tuple_row) as connection:
        on = connection.cursor() if kind == "cursor" else connection
        enqueue(on, FULL)
        enqueue(on, BINARY)
        _whole(outbox.enqueued(on))
        assert [] == outbox.waiting()
        connection.rollback()
        assert [] == outbox.enqueued(on)


async def test_psycopg_async_sees_its_open_transaction(outbox: Outbox, database_url: str) -> None:
    """As a sync one, by the methods that are awaited."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await enqueue_async(connection, FULL)
        await enqueue_async(connection, BINARY)
        _whole(await outbox.enqueued_async(connection))
        _whole(await outbox.enqueued_async(connection.cursor()))
        await outbox.assert_enqueued_async(connection, exchange="orders")
        with pytest.raises(AssertionError, match="2 messages where none was expected"):
            await outbox.assert_not_enqueued_async(connection)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", [Session, sqlalchemy.Connection, scoped_session])
def test_sqlalchemy_sees_its_open_transaction(outbox: Outbox, database_url: str, driver: str, kind: Any) -> None:
    """Sessions and connections, also where the test holds the transaction and the application's commit is a savepoint."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_url, driver))
    with engine.connect() as held:
        with held.begin() as outer:
            if kind is sqlalchemy.Connection:
                session: Any = held
            else:
                session = Session(held, join_transaction_mode="create_savepoint")
                if kind is scoped_session:
                    session = scoped_session(sessionmaker(held, join_transaction_mode="create_savepoint"))
            by_sqlalchemy.enqueue_many(session, [FULL, BINARY])
            if kind is not sqlalchemy.Connection:
                session.commit()
            _whole(outbox.enqueued(session))
            _whole(outbox.enqueued(held))
            outer.rollback()
        assert [] == outbox.waiting()
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("kind", [AsyncSession, AsyncConnection])
async def test_sqlalchemy_async_sees_its_open_transaction(outbox: Outbox, database_url: str, driver: str, kind: Any) -> None:
    """As a sync one."""
    engine = create_async_engine(sqlalchemy_url(database_url, driver), poolclass=NullPool)
    async with kind(engine) as session:
        await by_sqlalchemy.enqueue_many_async(session, [FULL, BINARY])
        _whole(await outbox.enqueued_async(session))
    await engine.dispose()


def test_django_sees_its_open_transaction(outbox: Outbox, database_url: str) -> None:
    """The connection of an alias, in nested blocks as TestCase opens them."""
    with django_on(database_url), transaction.atomic():
        with transaction.atomic():
            by_django.enqueue_many([FULL, BINARY])
        _whole(outbox.enqueued(django_connection))
        transaction.set_rollback(rollback=True)


async def test_asyncpg_sees_its_open_transaction(outbox: Outbox, database_url: str) -> None:
    """A connection of its own, or one of a pool."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool, pool.acquire() as connection, connection.transaction():
        await by_asyncpg.enqueue_many(connection, [FULL, BINARY])
        _whole(await outbox.enqueued_async(connection))


def test_only_this_transactions_messages_are_listed(outbox: Outbox, database_url: str) -> None:
    """Not what is committed, what another one has open, or what a savepoint took back; that of a savepoint that stays is."""
    with psycopg.connect(database_url) as connection, psycopg.connect(database_url) as other:
        enqueue(other, {"exchange": "committed"})
        other.commit()
        enqueue(other, {"exchange": "open elsewhere"})
        with connection.transaction(), connection.transaction(force_rollback=True):
            enqueue(connection, {"exchange": "taken back"})
        with connection.transaction():
            enqueue(connection, {"exchange": "ours"})
            assert ["ours"] == [message.exchange for message in outbox.enqueued(connection)]
        assert ["committed", "ours"] == [message.exchange for message in outbox.waiting()]


def test_a_login_that_may_only_enqueue_sees_what_it_has(outbox: Outbox, database_url: str) -> None:
    """Although it may not read the queue."""
    with login(database_url, "queue_message_producer") as producer, psycopg.connect(producer) as connection:
        enqueue(connection, FULL)
        outbox.assert_enqueued(connection, exchange="orders", content={"total": 1.5})


def test_messages_with_a_key_are_listed(outbox: Outbox, database_url: str) -> None:
    """Although they wait under it and not in the queue; a part of a bundle is what was inserted."""
    insert = "INSERT INTO queue_message_keyed (exchange, content, bundle_key, coalesce_key) VALUES ('mail', '{\"n\": 1}', %s, %s)"
    with psycopg.connect(database_url) as connection:
        connection.execute(insert, ("digest", None))
        connection.execute(insert, (None, "newest"))
        outbox.assert_enqueued(connection, exchange="mail", content={"n": 1}, bundle_key="digest", state="keyed")
        outbox.assert_enqueued(connection, exchange="mail", content={"n": 1}, coalesce_key="newest")


def test_a_connection_of_another_kind_is_named(outbox: Outbox, database_url: str) -> None:
    """Also one that belongs to the methods of the other face."""
    with pytest.raises(TypeError, match=r"^str is not a connection, cursor or session of psycopg, SQLAlchemy or Django; for an async "):
        outbox.enqueued("connection")


async def test_a_sync_connection_is_refused_by_what_is_awaited(outbox: Outbox, database_url: str) -> None:
    """And an async one by what is not."""
    with psycopg.connect(database_url) as connection, pytest.raises(TypeError, match="the methods without _async"):
        await outbox.enqueued_async(connection)
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        with pytest.raises(TypeError, match="the methods with _async"):
            outbox.enqueued(other)


async def test_a_sync_session_of_sqlalchemy_is_refused_by_what_is_awaited(outbox: Outbox, database_url: str) -> None:
    """And an async one by what is not."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, pytest.raises(TypeError, match="the methods without _async"):
        await outbox.enqueued_async(session)
    asynchronous = create_async_engine(sqlalchemy_url(database_url, "psycopg"), poolclass=NullPool)
    async with AsyncSession(asynchronous) as session, asynchronous.begin() as connection:
        for one in (session, connection):
            with pytest.raises(TypeError, match="the methods with _async"):
                outbox.enqueued(one)


@pytest.fixture
def odd(empty_database_url: str) -> Iterator[Outbox]:
    """An outbox in a schema whose name every driver could stumble over."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Odd: ""schema"" :x 100%"')
    migrate(empty_database_url, schema='Odd: "schema" :x 100%')
    with Outbox(empty_database_url, schema='Odd: "schema" :x 100%') as made:
        yield made


def test_a_schema_may_have_any_name_for_django(odd: Outbox, empty_database_url: str) -> None:
    """Which takes no percent sign for itself."""
    with django_on(empty_database_url), transaction.atomic():
        by_django.enqueue(BINARY, schema=odd.schema)
        odd.assert_enqueued(django_connection, body=b"\x00\xff")
        transaction.set_rollback(rollback=True)


async def test_a_schema_may_have_any_name(odd: Outbox, empty_database_url: str) -> None:
    """On each driver."""
    with psycopg.connect(empty_database_url) as connection:
        enqueue(connection, FULL, schema=odd.schema)
        odd.assert_enqueued(connection, exchange="orders")
    assert 1 == len(odd.waiting())
    engine = sqlalchemy.create_engine(sqlalchemy_url(empty_database_url, "psycopg2"), poolclass=NullPool)
    with Session(engine) as session:
        by_sqlalchemy.enqueue(session, BINARY, schema=odd.schema)
        odd.assert_enqueued(session, body=b"\x00\xff")
    asynchronous = await asyncpg.connect(empty_database_url)
    async with asynchronous.transaction():
        await by_asyncpg.enqueue(asynchronous, BINARY, schema=odd.schema)
        await odd.assert_enqueued_async(asynchronous, body=b"\x00\xff")
    await asynchronous.close()
