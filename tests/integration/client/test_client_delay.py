"""A delay is counted by the database's clock from the call on, by whatever way the message comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from asgiref.sync import sync_to_async
from django.db import connection as django_connection
from django.db import transaction
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from relay import client
from relay.client import Message
from relay.integrations import asyncpg as by_asyncpg
from relay.integrations import django as by_django
from relay.integrations import sqlalchemy as by_sqlalchemy
from tests.support.applications.libraries import django_on, sqlalchemy_url

pytestmark = pytest.mark.ids("A38")
DELAYS = [timedelta(microseconds=1), timedelta(days=90), timedelta(days=180), timedelta(days=270, hours=1)]
"""Some lead over a change of the clocks at any time of the year."""
Seen = Callable[[], None]


async def _one_by_one(url: str, messages: Sequence[Message], begun: Seen) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        begun()
        for message in messages:
            client.enqueue(connection, message)


async def _many(url: str, messages: Sequence[Message], begun: Seen) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        begun()
        client.enqueue_many(connection, messages)


async def _many_async(url: str, messages: Sequence[Message], begun: Seen) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT 1")
        begun()
        await client.enqueue_many_async(connection, messages)


async def _copy(url: str, messages: Sequence[Message], begun: Seen) -> None:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute("SELECT 1")
        begun()
        client.enqueue_copy(connection, messages)


async def _copy_async(url: str, messages: Sequence[Message], begun: Seen) -> None:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        await connection.execute("SELECT 1")
        begun()
        await client.enqueue_copy_async(connection, messages)


async def _sqlalchemy(url: str, messages: Sequence[Message], begun: Seen) -> None:
    with sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg2"), poolclass=NullPool).begin() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
        begun()
        by_sqlalchemy.enqueue_many(connection, messages)


async def _sqlalchemy_async(url: str, messages: Sequence[Message], begun: Seen) -> None:
    async with create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool).begin() as connection:
        await connection.execute(sqlalchemy.text("SELECT 1"))
        begun()
        await by_sqlalchemy.enqueue_many_async(connection, messages)


async def _asyncpg(url: str, messages: Sequence[Message], begun: Seen) -> None:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute("SELECT 1")
        begun()
        await by_asyncpg.enqueue_many(connection, messages)
    await connection.close()


async def _django(url: str, messages: Sequence[Message], begun: Seen) -> None:
    await sync_to_async(_django_sync)(url, messages, begun)


def _django_sync(url: str, messages: Sequence[Message], begun: Seen) -> None:
    with django_on(url), transaction.atomic():
        with django_connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        begun()
        by_django.enqueue_many(messages)


WAYS: list[Callable[[str, Sequence[Message], Seen], Awaitable[None]]] = [
    _one_by_one, _many, _many_async, _copy, _copy_async, _sqlalchemy, _sqlalchemy_async, _asyncpg, _django,
]  # fmt: skip


@pytest.mark.parametrize("key", [{}, {"bundle_key": "b"}], ids=["plain", "keyed"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_a_delay_counts_from_the_call_by_the_databases_clock(database_url: str, way: Any, key: dict[str, Any]) -> None:
    """Not from the start of the transaction, and to the microsecond, over changes of the session's clock as well."""
    messages = [Message(exchange="orders", delay=delay, **key) for delay in DELAYS]
    with psycopg.connect(database_url, autocommit=True) as other:
        name = sql.Identifier(other.info.dbname)
        other.execute(sql.SQL("ALTER DATABASE {} SET timezone = 'Europe/Vienna'").format(name))
        other.execute("SET TIME ZONE 'UTC'")
        clock = partial(_values, other, "SELECT clock_timestamp()")
        times: list[datetime] = []
        await way(database_url, [*messages, Message(exchange="orders", **key)], lambda: times.extend(clock()))
        times += clock()
        *due, none = _values(other, f"SELECT available_at FROM queue_message{'_keyed' if key else ''} ORDER BY available_at")

    assert none is None
    for moment, delay in zip(due, DELAYS, strict=True):
        assert times[0] <= moment - delay <= times[1]


async def test_a_delay_beyond_the_end_of_a_message_is_refused_by_the_database(database_url: str) -> None:
    """It alone knows its clock; the error is the driver's own."""
    message = Message(exchange="orders", delay=timedelta(days=2), expires_at=datetime.now(UTC) + timedelta(days=1))
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.errors.CheckViolation, match="expires_at is not after available_at"),
    ):
        client.enqueue(connection, message)


def _values(connection: psycopg.Connection[Any], statement: str) -> list[Any]:
    return [value for (value,) in connection.execute(statement.encode())]
