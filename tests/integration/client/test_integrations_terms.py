"""Keys and contracts in the transactions of SQLAlchemy, Django and asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from relay.client import MessageError
from relay.integrations import asyncpg as by_asyncpg
from relay.integrations import django as by_django
from relay.integrations import sqlalchemy as by_sqlalchemy
from tests.support.applications.libraries import django_on, sqlalchemy_url

pytestmark = pytest.mark.ids("A37", "A38", "D7")
SCHEMA = '{"required": ["order"]}'
WHY = r'^content breaks contract "orders" "order\.\*" version 1 at "", rule required'
BROKEN: dict[str, Any] = {"exchange": "orders", "routing_key": "order.paid", "content": {}}
GOOD = {**BROKEN, "content": {"order": 7}, "dedup_key": "7"}
PARTS = [{**BROKEN, "routing_key": "line", "content": n, "bundle_key": "b", "dedup_key": str(n % 2), "dedup_seconds": 9} for n in range(3)]
MIXED = [GOOD, {"exchange": "orders"}]


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A database with a contract; afterwards each library has done the same there."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SELECT queue_message_contract_add('orders', 'order.*', %s, mode => 'enforce')", [SCHEMA])
        yield database_url
        assert [("7", '{"order": 7}')] == owner.execute(
            "SELECT d.dedup_key, m.content::text FROM queue_message m JOIN queue_message_dedup d ON d.message_id = m.id"
        ).fetchall()
        keyed = (
            "SELECT k.content::text, bundle_key, d.until - now() < interval '10 s' FROM queue_message_keyed k JOIN queue_message_dedup d "
        )
        assert {("0", "b", True), ("1", "b", True)} == {*owner.execute((keyed + "ON d.message_id = k.id").encode()).fetchall()}


def _told(one: UUID, again: UUID, parts: list[UUID]) -> None:
    """What is known has the id of the first."""
    assert one == again
    assert parts[0] == parts[2] != parts[1]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_takes_keys_and_contracts(url: str, driver: str) -> None:
    """Before any SQL a contract is kept; a key that is known enqueues nothing."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        contracts = by_sqlalchemy.load_contracts(session)
        with pytest.raises(MessageError, match=WHY):
            by_sqlalchemy.enqueue(session, BROKEN, contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2: content breaks"):
            by_sqlalchemy.enqueue_many(session, [GOOD, BROKEN], contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2 has no key"):
            by_sqlalchemy.enqueue_many(session, MIXED)
        one, again = (by_sqlalchemy.enqueue(session, GOOD, contracts=contracts) for _ in range(2))
        _told(one, again, by_sqlalchemy.enqueue_many(session, PARTS, contracts=contracts))


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_sqlalchemy_takes_keys_and_contracts(url: str, driver: str) -> None:
    """As its sync kin."""
    engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
    async with engine.begin() as connection:
        contracts = await by_sqlalchemy.load_contracts_async(connection)
        with pytest.raises(MessageError, match=WHY):
            await by_sqlalchemy.enqueue_async(connection, BROKEN, contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2: content breaks"):
            await by_sqlalchemy.enqueue_many_async(connection, [GOOD, BROKEN], contracts=contracts)
        one = await by_sqlalchemy.enqueue_async(connection, GOOD, contracts=contracts)
        again = await by_sqlalchemy.enqueue_async(connection, GOOD)
        _told(one, again, await by_sqlalchemy.enqueue_many_async(connection, PARTS))
    await engine.dispose()


def test_django_takes_keys_and_contracts(url: str) -> None:
    """Also those of an alias."""
    with django_on(url), transaction.atomic():
        contracts = by_django.load_contracts()
        assert 1 == len(by_django.load_contracts(using="other"))
        with pytest.raises(MessageError, match=WHY):
            by_django.enqueue(BROKEN, contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2: content breaks"):
            by_django.enqueue_many([GOOD, BROKEN], contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2 has no key"):
            by_django.enqueue_many(MIXED)
        one, again = (by_django.enqueue(GOOD, contracts=contracts) for _ in range(2))
        _told(one, again, by_django.enqueue_many(PARTS))


def test_asyncpg_takes_keys_and_contracts(url: str) -> None:
    """With asyncpg's own connection."""
    asyncio.run(_with_asyncpg(url))


async def _with_asyncpg(url: str) -> None:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        contracts = await by_asyncpg.load_contracts(connection)
        with pytest.raises(MessageError, match=WHY):
            await by_asyncpg.enqueue(connection, BROKEN, contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2: content breaks"):
            await by_asyncpg.enqueue_many(connection, [GOOD, BROKEN], contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 2 has no key"):
            await by_asyncpg.enqueue_many(connection, MIXED)
        one = await by_asyncpg.enqueue(connection, GOOD, contracts=contracts)
        again = await by_asyncpg.enqueue(connection, GOOD)
        _told(one, again, await by_asyncpg.enqueue_many(connection, PARTS))
    await connection.close()
