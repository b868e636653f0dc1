"""What `pay` announces, and that it arrives: see ../../docs/testing.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pay import RefusedError, pay

from relay.testing.outbox import Outbox

SCHEMA = (Path(__file__).parents[1] / "schema.sql").read_bytes()


@pytest.fixture
def connection(outbox_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """One transaction for each test; nothing of it stays."""
    with psycopg.connect(outbox_database_url) as connection, connection.transaction(force_rollback=True):
        connection.execute(SCHEMA)
        yield connection


def test_an_invoice_is_announced(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """In the transaction that writes it."""
    message_id = pay(connection, 120)
    message = outbox.assert_enqueued(connection, exchange="shop", routing_key="order.paid", content={"total": 120})
    assert message_id == message.id


def test_what_the_bank_refuses_is_not_announced(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """The message goes with the invoice."""
    with pytest.raises(RefusedError):
        pay(connection, 5000)
    outbox.assert_not_enqueued(connection)


def test_the_announcement_arrives(outbox: Outbox, outbox_database_url: str) -> None:
    """With the relay that runs in production, and a broker in memory."""
    with outbox.relay() as broker, psycopg.connect(outbox_database_url) as connection:
        broker.declare_exchange("shop")
        broker.bind("orders", "shop", "order.*")
        connection.execute(SCHEMA)
        message_id = pay(connection, 120)
        connection.commit()
        broker.drained()

        [delivered] = broker.queue("orders")
        assert (str(message_id), 120) == (delivered.message_id, delivered.content["total"])
        archived = outbox.archive(message_id)
        assert archived is not None
        assert "success" == archived.result
