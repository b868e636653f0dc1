"""Enqueueing in the caller's own transaction, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from relay.client import JsonText, Message, MessageError, Options, enqueue, enqueue_async, enqueue_many, enqueue_many_async
from relay.postgres.schema.migrate import migrate
from tests.support.servers.logins import login

pytestmark = pytest.mark.ids("A38")
TIME, LATER = datetime(2031, 1, 31, 12, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's connection, in its default mode: a transaction begins by itself."""
    with psycopg.connect(database_url) as made:
        yield made


def _waiting(url: str) -> list[str]:
    """Contents of the committed messages in claim order, seen from outside."""
    with psycopg.connect(url) as other:
        return [content for (content,) in other.execute("SELECT content::text FROM queue_message ORDER BY xid, seq")]


def test_a_message_is_there_when_the_transaction_commits_and_not_before(connection: psycopg.Connection[Any], database_url: str) -> None:
    """Nothing commits by itself."""
    enqueue(connection, Message(exchange="orders", routing_key="paid", content={"n": 1}))
    assert [] == _waiting(database_url)

    connection.commit()
    assert ['{"n": 1}'] == _waiting(database_url)


def test_a_rolled_back_transaction_leaves_nothing(connection: psycopg.Connection[Any], database_url: str) -> None:
    """The message goes with the business that it was part of."""
    enqueue_many(connection, [Message(exchange="orders"), Message(exchange="orders")])
    connection.rollback()

    assert [] == _waiting(database_url)


def test_a_rolled_back_savepoint_takes_only_its_own_messages(connection: psycopg.Connection[Any], database_url: str) -> None:
    """What was enqueued before and after it stays."""
    with connection.transaction():
        enqueue(connection, Message(exchange="orders", content="before"))
        with connection.transaction(force_rollback=True):
            enqueue(connection, Message(exchange="orders", content="inside"))
        enqueue(connection, Message(exchange="orders", content="after"))

    assert ['"before"', '"after"'] == _waiting(database_url)


def test_every_field_reaches_its_column(connection: psycopg.Connection[Any]) -> None:
    """The row is what the message says; what it leaves out is the table's default."""
    message = Message(
        exchange="orders", routing_key="paid", content=JsonText('{"total": 1.10}'), options=Options(priority=3, headers={"a": [1, None]}),
        ordering_key="customer-7", available_at=TIME, expires_at=LATER, id=UUID(int=7),
    )  # fmt: skip
    assert UUID(int=7) == enqueue(connection, message)
    binary = enqueue(connection, {"exchange": "", "body": b"\x00\xff"})

    rows = connection.execute(
        "SELECT id, exchange, routing_key, content::text, body, options, ordering_key, available_at, expires_at "
        "FROM queue_message ORDER BY seq"
    ).fetchall()
    assert [
        (UUID(int=7), "orders", "paid", '{"total": 1.10}', None, {"priority": 3, "headers": {"a": [1, None]}}, "customer-7", TIME, LATER),
        (binary, "", "", "{}", b"\x00\xff", {}, None, None, None),
    ] == rows


def test_many_messages_keep_their_order_and_return_their_ids(connection: psycopg.Connection[Any], database_url: str) -> None:
    """One statement, any iterable, ids in the order given, claim order the same."""
    ids = enqueue_many(connection, (Message(exchange="orders", content=number, ordering_key="key") for number in range(3000)))
    connection.commit()

    with psycopg.connect(database_url) as other:
        assert [(id_, number) for number, id_ in enumerate(ids)] == other.execute(
            "SELECT id, content::text::int FROM queue_message ORDER BY xid, seq"
        ).fetchall()


def test_no_messages_are_no_statement(connection: psycopg.Connection[Any]) -> None:
    """Not even a transaction begins."""
    assert [] == enqueue_many(connection, [])
    assert psycopg.pq.TransactionStatus.IDLE == connection.info.transaction_status


def test_a_wrong_message_leaves_the_transaction_usable(connection: psycopg.Connection[Any], database_url: str) -> None:
    """It is refused before any SQL, by its place and in one sentence."""
    enqueue(connection, Message(exchange="orders", content="good"))
    with pytest.raises(MessageError, match=r"^message 2: options\.priority must be a whole number from 0 to 255$"):
        enqueue_many(connection, [{"exchange": "orders"}, {"exchange": "orders", "options": {"priority": 300}}])
    connection.commit()

    assert ['"good"'] == _waiting(database_url)


def test_what_only_the_database_knows_is_psycopgs_own_error(connection: psycopg.Connection[Any]) -> None:
    """An id that is in the queue already, for instance, so that the caller's own handling of errors holds."""
    message = Message(exchange="orders")
    enqueue(connection, message)

    with pytest.raises(psycopg.errors.UniqueViolation):
        enqueue(connection, message)


def test_a_cursor_keeps_its_own_results(connection: psycopg.Connection[Any]) -> None:
    """Enqueueing in the middle of a loop over a result does not disturb it."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT generate_series(1, 3) AS n")
        seen = []
        while row := cursor.fetchone():
            enqueue(cursor, Message(exchange="orders", content=row["n"]))
            seen.append(row["n"])

    assert [1, 2, 3] == seen


@pytest.mark.parametrize("kind", [psycopg.ClientCursor, psycopg.RawCursor])
def test_the_connections_own_kind_of_cursor_does_not_matter(database_url: str, kind: Any) -> None:
    """Placeholders and binding are the client's own business."""
    with psycopg.connect(database_url, cursor_factory=kind) as connection:
        enqueue(connection, Message(exchange="orders", content=1))

    assert ["1"] == _waiting(database_url)


def test_another_schema_is_named_by_the_caller(empty_database_url: str) -> None:
    """Several outboxes live in one database."""
    migrate(empty_database_url, schema='Odd "schema" 100%')
    with psycopg.connect(empty_database_url) as connection:
        enqueue(connection, Message(exchange="orders"), schema='Odd "schema" 100%')
        name = sql.Identifier('Odd "schema" 100%', "queue_message")
        assert (1,) == connection.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchone()


def test_the_role_of_producers_is_enough(database_url: str) -> None:
    """An application needs INSERT on its own columns and nothing else."""
    with login(database_url, "queue_message_producer") as url, psycopg.connect(url) as connection:
        enqueue(connection, Message(exchange="orders", content="mine", ordering_key="key"))

    assert ['"mine"'] == _waiting(database_url)


async def test_async_connections_enqueue_alike(database_url: str) -> None:
    """In a transaction, by connection or cursor, one or many, rolled back or committed."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await enqueue_async(connection, Message(exchange="orders", content="gone"))
        await connection.rollback()
        first = await enqueue_async(connection, {"exchange": "orders", "content": 1})
        async with connection.cursor() as cursor:
            rest = await enqueue_many_async(cursor, [Message(exchange="orders", content=2), Message(exchange="orders", content=3)])
        with pytest.raises(MessageError):
            await enqueue_many_async(connection, [{"exchange": "x" * 256}])
        assert [] == _waiting(database_url)

    assert ["1", "2", "3"] == _waiting(database_url)
    assert 3 == len({first, *rest})
