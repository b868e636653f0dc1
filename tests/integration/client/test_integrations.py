"""Enqueueing in the transactions of SQLAlchemy, Django and asyncpg."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg import sql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from relay.client import JsonText, Message, MessageError, Options, OutboxModel
from relay.integrations import asyncpg as by_asyncpg
from relay.integrations import django as by_django
from relay.integrations import sqlalchemy as by_sqlalchemy
from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.applications.libraries import django_on, sqlalchemy_url
from tests.support.relays.traces import PARENT

TIME, LATER = datetime(2031, 1, 31, 12, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)
ODD = 'Odd: "schema" :x 100%'
FULL = Message(
    exchange="orders", routing_key="p\N{LATIN SMALL LETTER A WITH DIAERESIS}:id %s",
    content=JsonText('{"total": 1.10, "text": "\\" \\\\ :x"}'),
    options=Options(priority=3, headers={"a": [1, None]}), ordering_key="customer-7", available_at=TIME, expires_at=LATER, id=UUID(int=7),
)  # fmt: skip
BINARY: dict[str, Any] = {"exchange": "", "body": b"\x00\xff", "id": UUID(int=8)}
WRONG: list[dict[str, Any]] = [{"exchange": "orders"}, {"exchange": "orders", "options": {"priority": 300}}]
WHY = r"^message 2: options\.priority must be a whole number from 0 to 255$"


class Paid(OutboxModel, exchange="billing", routing_key="invoice.paid"):
    """A message of a class of its own."""

    invoice: int


def _waiting(url: str) -> list[str]:
    """Contents of the committed messages in claim order, seen from outside."""
    with psycopg.connect(url) as other:
        return [content for (content,) in other.execute("SELECT content::text FROM queue_message ORDER BY xid, seq")]


def _reached(url: str) -> None:
    """Every field of FULL, of BINARY and of Paid is in its column."""
    with psycopg.connect(url) as other:
        rows = other.execute(
            "SELECT id, exchange, routing_key, content::text, body, options, ordering_key, available_at, expires_at "
            "FROM queue_message ORDER BY xid, seq"
        ).fetchall()
    options = {"priority": 3, "headers": {"a": [1, None], "traceparent": PARENT}}
    text = '{"text": "\\" \\\\ :x", "total": 1.10}'
    assert (UUID(int=7), "orders", FULL.routing_key, text, None, options, "customer-7", TIME, LATER) == rows[0]
    assert (UUID(int=8), "", "", "{}", b"\x00\xff", {"headers": {"traceparent": PARENT}}, None, None, None) == rows[1]
    assert ("billing", "invoice.paid", '{"invoice": 9}') == rows[2][1:4]


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(request: pytest.FixtureRequest, database_url: str) -> Iterator[sqlalchemy.Engine]:
    """SQLAlchemy on each driver."""
    made = sqlalchemy.create_engine(sqlalchemy_url(database_url, request.param))
    yield made
    made.dispose()


@pytest.mark.parametrize("kind", [Session, sqlalchemy.Connection])
def test_a_sqlalchemy_transaction_has_its_messages(engine: sqlalchemy.Engine, database_url: str, kind: Any) -> None:
    """Session or connection: there at the commit, gone with a rollback or a savepoint, and a wrong one leaves it as it was."""
    with kind(engine) as session:
        by_sqlalchemy.enqueue(session, Message(exchange="orders", content="gone"))
        session.rollback()
        assert UUID(int=7) == by_sqlalchemy.enqueue(session, FULL, traceparent=PARENT)
        with session.begin_nested() as inner:
            by_sqlalchemy.enqueue(session, Message(exchange="orders", content="inside"))
            inner.rollback()
        with pytest.raises(MessageError, match=WHY):
            by_sqlalchemy.enqueue_many(session, WRONG)
        assert 2 == len(by_sqlalchemy.enqueue_many(session, [BINARY, Paid(invoice=9)], traceparent=PARENT))
        assert [] == by_sqlalchemy.enqueue_many(session, [])
        assert [] == _waiting(database_url)
        session.commit()

    _reached(database_url)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_async_sqlalchemy_transaction_has_its_messages(database_url: str, driver: str) -> None:
    """As a sync one."""
    engine = create_async_engine(sqlalchemy_url(database_url, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        await by_sqlalchemy.enqueue_async(session, Message(exchange="orders", content="gone"))
        await session.rollback()
        await by_sqlalchemy.enqueue_async(session, FULL, traceparent=PARENT)
        with pytest.raises(MessageError, match=WHY):
            await by_sqlalchemy.enqueue_many_async(session, WRONG)
        await by_sqlalchemy.enqueue_many_async(session, [BINARY, Paid(invoice=9)], traceparent=PARENT)
        assert [] == _waiting(database_url)
        await session.commit()
    _reached(database_url)
    async with engine.begin() as connection:
        await by_sqlalchemy.enqueue_async(connection, Message(exchange="orders", content="last"))
    await engine.dispose()

    assert '"last"' == _waiting(database_url)[-1]


def test_what_only_the_database_knows_is_sqlalchemys_own_error(engine: sqlalchemy.Engine) -> None:
    """An id that is in the queue already."""
    with Session(engine) as session, pytest.raises(sqlalchemy.exc.IntegrityError):
        by_sqlalchemy.enqueue_many(session, [FULL, FULL])


def test_an_odd_schema_is_named_by_the_caller(empty_database_url: str) -> None:
    """Colons, quotes and percent signs are no placeholders, whatever the driver."""
    migrate(empty_database_url, schema=ODD)
    for driver in ("psycopg", "psycopg2"):
        engine = sqlalchemy.create_engine(sqlalchemy_url(empty_database_url, driver), poolclass=NullPool)
        with engine.begin() as connection:
            by_sqlalchemy.enqueue(connection, Paid(invoice=1), schema=ODD)
    with django_on(empty_database_url), transaction.atomic():
        by_django.enqueue(Paid(invoice=2), schema=ODD)
    asyncio.run(_by_itself(empty_database_url))
    with psycopg.connect(empty_database_url) as other:
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(ODD, "queue_message"))
        assert (4,) == other.execute(count).fetchone()


async def _by_itself(url: str) -> None:
    connection = await asyncpg.connect(url)
    await by_asyncpg.enqueue(connection, Paid(invoice=3), schema=ODD, autocommit=True)
    await connection.close()


@pytest.fixture
def django_database(database_url: str) -> Iterator[str]:
    """Django on the test's database."""
    with django_on(database_url):
        yield database_url


def test_an_atomic_block_has_its_messages(django_database: str) -> None:
    """There at the commit, gone with an exception or a savepoint, and a wrong one leaves it as it was."""

    def fail() -> None:
        with transaction.atomic():
            by_django.enqueue(Message(exchange="orders", content="gone"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with transaction.atomic():
        assert UUID(int=7) == by_django.enqueue(FULL, traceparent=PARENT)
        with pytest.raises(RuntimeError):
            fail()
        with pytest.raises(MessageError, match=WHY):
            by_django.enqueue_many(WRONG)
        assert 2 == len(by_django.enqueue_many([BINARY, Paid(invoice=9)], traceparent=PARENT))
        assert [] == by_django.enqueue_many([])
        assert [] == _waiting(django_database)

    _reached(django_database)


def test_outside_of_an_atomic_block_django_is_asked_for_one(django_database: str) -> None:
    """Unless the message may commit by itself; each alias has blocks of its own."""
    with pytest.raises(MessageError, match=r"^The message would commit by itself: open transaction\.atomic\(\) first, or pass autocommit"):
        by_django.enqueue(Paid(invoice=1))
    with transaction.atomic(using="other"):
        with pytest.raises(MessageError, match=r"atomic"):
            by_django.enqueue(Paid(invoice=1))
        by_django.enqueue(Paid(invoice=2), using="other")
        by_django.enqueue(Paid(invoice=3), autocommit=True)
        assert ['{"invoice": 3}'] == _waiting(django_database)
    transaction.set_autocommit(False)
    by_django.enqueue(Paid(invoice=4))
    transaction.commit()

    assert ['{"invoice": 2}', '{"invoice": 3}', '{"invoice": 4}'] == _waiting(django_database)


def test_a_database_that_is_no_postgresql_is_named(django_database: str) -> None:
    """The queue cannot be there."""
    with (
        transaction.atomic(using="lite"),
        pytest.raises(MessageError, match=r"^The database 'lite' is sqlite, and the queue is in a PostgreSQL"),
    ):
        by_django.enqueue(Paid(invoice=1), using="lite")


async def test_an_asyncpg_transaction_has_its_messages(database_url: str) -> None:
    """There at the commit, gone with a rollback or a savepoint, from a pool too; outside of one it is asked for."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        with pytest.raises(MessageError, match=r"^The message would commit by itself: open connection\.transaction\(\) first"):
            await by_asyncpg.enqueue(connection, FULL)
        async with connection.transaction():
            await by_asyncpg.enqueue(connection, FULL, traceparent=PARENT)
            inner = connection.transaction()
            await inner.start()
            await by_asyncpg.enqueue(connection, Paid(invoice=1))
            await inner.rollback()
            with pytest.raises(MessageError, match=WHY):
                await by_asyncpg.enqueue_many(connection, WRONG)
            await by_asyncpg.enqueue_many(connection, [BINARY, Paid(invoice=9)], traceparent=PARENT)
            assert [] == await by_asyncpg.enqueue_many(connection, [])
            assert [] == _waiting(database_url)
        _reached(database_url)
        await by_asyncpg.enqueue(connection, Paid(invoice=10), autocommit=True)

    assert '{"invoice": 10}' == _waiting(database_url)[-1]


def test_nothing_else_needs_these_libraries() -> None:
    """The client imports none of them."""
    code = "import sys, relay.client, relay.consumer, relay.integrations; print({'sqlalchemy', 'django', 'asyncpg'} & {*sys.modules})"
    assert "set()\n" == subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
