"""What `pay` announces, and that it arrives: see ../../docs/testing.md."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoices import RefusedError
from pay import pay
from pay_async import pay as pay_async
from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from relay.testing.outbox import Outbox

SCHEMA = (Path(__file__).parents[1] / "schema.sql").read_text(encoding="utf-8")


@pytest.fixture
def engine(outbox_database_url: str) -> Iterator[Engine]:
    """On the test's database."""
    engine = create_engine(make_url(outbox_database_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(SCHEMA)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """One transaction for each test, rolled back: the commits of the sessions on it are savepoints."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()


def test_a_session_announces_its_invoice(outbox: Outbox, connection: Connection) -> None:
    """In the transaction that writes it."""
    message_id = pay(sessionmaker(connection, join_transaction_mode="create_savepoint"), 120)
    message = outbox.assert_enqueued(connection, exchange="shop", routing_key="order.paid", content={"total": 120})
    assert message_id == message.id


def test_a_session_does_not_announce_what_the_bank_refuses(outbox: Outbox, connection: Connection) -> None:
    """The message goes with the invoice."""
    with pytest.raises(RefusedError):
        pay(sessionmaker(connection, join_transaction_mode="create_savepoint"), 5000)
    outbox.assert_not_enqueued(connection)


def test_an_async_session_announces_its_invoice(outbox: Outbox, engine: Engine) -> None:
    """As a sync one; with pytest-asyncio or anyio the test would be the coroutine itself."""

    async def announces() -> None:
        asynchronous = create_async_engine(engine.url)
        async with asynchronous.connect() as connection, connection.begin() as transaction:
            await pay_async(async_sessionmaker(connection, join_transaction_mode="create_savepoint"), 120)
            await outbox.assert_enqueued_async(connection, exchange="shop", content={"total": 120})
            await transaction.rollback()
        await asynchronous.dispose()

    asyncio.run(announces())


def test_the_announcement_of_a_session_arrives(outbox: Outbox, engine: Engine) -> None:
    """With the relay that runs in production, and a broker in memory."""
    with outbox.relay() as broker:
        broker.declare_exchange("shop")
        broker.bind("orders", "shop", "order.*")
        message_id = pay(sessionmaker(engine), 120)
        broker.drained()

        [delivered] = broker.queue("orders")
        assert (str(message_id), 120) == (delivered.message_id, delivered.content["total"])
