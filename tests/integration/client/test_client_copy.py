"""Enqueueing a stream of messages by COPY."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relay.client import JsonText, Message, MessageError, Options, OutboxModel, enqueue, enqueue_copy, enqueue_copy_async
from tests.support.servers.logins import login

TIME, LATER = datetime(2031, 1, 31, 12, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)
ROWS = "SELECT content::text FROM queue_message ORDER BY xid, seq"


class Paid(OutboxModel, exchange="billing"):
    """A message of a class of its own."""

    invoice: int


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's connection, in its default mode: a transaction begins by itself."""
    with psycopg.connect(database_url) as made:
        yield made


def _waiting(url: str) -> list[str]:
    with psycopg.connect(url) as other:
        return [content for (content,) in other.execute(ROWS.encode())]


def _stream(count: int, *, wrong_at: int = 0) -> Iterator[Message | dict[str, Any]]:
    for place in range(1, count + 1):
        yield {"exchange": "x" * 256} if place == wrong_at else Message(exchange="orders", content=place)


def test_a_stream_is_there_in_its_order_when_the_transaction_commits(connection: psycopg.Connection[Any], database_url: str) -> None:
    """Counted, and not before."""
    assert 3000 == enqueue_copy(connection, _stream(3000))
    assert [] == _waiting(database_url)

    connection.commit()
    assert [str(number) for number in range(1, 3001)] == _waiting(database_url)


def test_every_field_reaches_its_column(connection: psycopg.Connection[Any]) -> None:
    """Whatever signs are in it; what it leaves out is the table's default."""
    content = JsonText('{"total": 1.10, "text": "\\\\ \\t \\n \\u00e4 %s \\\\N"}')
    message = Message(
        exchange="or\tders", routing_key="\\N", content=content, options=Options(priority=3, headers={"a\n": [1, None]}),
        ordering_key="", available_at=TIME, expires_at=LATER, id=UUID(int=7),
    )  # fmt: skip
    binary = Message(exchange="", body=b"\x00\\\xff", id=UUID(int=8))
    assert 3 == enqueue_copy(connection, [message, binary, Paid(invoice=9)])

    rows = connection.execute(
        "SELECT id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at FROM queue_message ORDER BY seq"
    ).fetchall()
    text = {"total": 1.10, "text": "\\ \t \n \N{LATIN SMALL LETTER A WITH DIAERESIS} %s \\N"}
    assert (UUID(int=7), "or\tders", "\\N", text, None, {"priority": 3, "headers": {"a\n": [1, None]}}, "", TIME, LATER) == rows[0]
    assert (UUID(int=8), "", "", {}, b"\x00\\\xff", {}, None, None, None) == rows[1]
    assert ("billing", {"invoice": 9}) == (rows[2][1], rows[2][3])


@pytest.mark.parametrize("place", [1, 700, 1000])
def test_a_wrong_message_in_the_middle_takes_all_with_it_and_leaves_the_transaction_usable(
    connection: psycopg.Connection[Any], database_url: str, place: int
) -> None:
    """Its place is named; what was done before stays."""
    enqueue(connection, Message(exchange="orders", content="before"))
    with pytest.raises(MessageError, match=rf"^message {place}: exchange is 256 bytes long; the limit is 255 bytes$"):
        enqueue_copy(connection, _stream(1000, wrong_at=place))
    enqueue(connection, Message(exchange="orders", content="after"))
    connection.commit()

    assert ['"before"', '"after"'] == _waiting(database_url)


def test_what_only_the_database_knows_leaves_the_transaction_usable(connection: psycopg.Connection[Any], database_url: str) -> None:
    """An id that is in the queue already is psycopg's own error."""
    message = Message(exchange="orders", content="once")
    enqueue(connection, message)
    with pytest.raises(psycopg.errors.UniqueViolation):
        enqueue_copy(connection, [Message(exchange="orders"), message])
    connection.commit()

    assert ['"once"'] == _waiting(database_url)


def test_rolled_back_nothing_stays(connection: psycopg.Connection[Any], database_url: str) -> None:
    """A savepoint or the transaction."""
    with connection.transaction(force_rollback=True):
        enqueue_copy(connection, _stream(3))
    enqueue_copy(connection, _stream(3))
    connection.rollback()

    assert [] == _waiting(database_url)


def test_in_autocommit_mode_the_stream_commits_by_itself_or_not_at_all(database_url: str) -> None:
    """As any other statement, and also within a transaction of that mode."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(MessageError, match=r"^message 2: "):
            enqueue_copy(connection, _stream(3, wrong_at=2))
        assert [] == _waiting(database_url)
        with connection.transaction():
            assert 1 == enqueue_copy(connection.cursor(), _stream(1))
            assert [] == _waiting(database_url)
        assert 2 == enqueue_copy(connection, _stream(2))

    assert ["1", "1", "2"] == _waiting(database_url)


def test_nothing_is_a_stream_too(connection: psycopg.Connection[Any]) -> None:
    """Of no messages."""
    assert 0 == enqueue_copy(connection, [])


def test_memory_does_not_grow_with_the_stream(connection: psycopg.Connection[Any]) -> None:
    """The messages are 40 MB together; a hundredth of it is held."""

    def large(count: int) -> Iterator[Message]:
        for _ in range(count):
            yield Message(exchange="orders", content="x" * 20_000)

    enqueue_copy(connection, large(10))
    tracemalloc.start()
    try:
        enqueue_copy(connection, large(2000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_role_of_producers_is_enough(database_url: str) -> None:
    """COPY asks for INSERT on the application's own columns alone."""
    with login(database_url, "queue_message_producer") as url, psycopg.connect(url) as connection:
        enqueue_copy(connection, _stream(2))

    assert ["1", "2"] == _waiting(database_url)


async def test_async_connections_stream_alike(database_url: str) -> None:
    """From any iterable or an async one; a wrong message takes its stream with it."""

    async def slow(count: int, *, wrong_at: int = 0) -> AsyncIterator[Message | dict[str, Any]]:
        for message in _stream(count, wrong_at=wrong_at):
            yield message

    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        assert 2 == await enqueue_copy_async(connection, slow(2))
        with pytest.raises(MessageError, match=r"^message 3: "):
            await enqueue_copy_async(connection, slow(9, wrong_at=3))
        assert 1 == await enqueue_copy_async(connection.cursor(), _stream(1))
        await connection.commit()
        await connection.set_autocommit(True)
        assert 1 == await enqueue_copy_async(connection, _stream(1))

    assert ["1", "2", "1", "1"] == _waiting(database_url)
