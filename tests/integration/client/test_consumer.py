"""Handling a message once, in the consumer's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractIncomingMessage
from psycopg import sql

from relay.consumer import ConsumerError, once, once_async, relay_id
from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login

ID = "01a1fdc9-1287-70cd-8b56-1ce4c5c012b6"


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The consumer's connection, in its default mode: a transaction begins by itself."""
    with psycopg.connect(database_url) as made:
        yield made


def test_a_message_is_new_once_for_each_consumer(connection: psycopg.Connection[Any]) -> None:
    """Again, as text or uuid, it is known; to another consumer it is new."""
    assert once(connection, ID, consumer="billing")
    assert not once(connection, UUID(ID), consumer="billing")
    connection.commit()

    assert not once(connection.cursor(), ID, consumer="billing")
    assert once(connection.cursor(), ID, consumer="mail")


def test_a_rollback_takes_the_mark_with_the_work(connection: psycopg.Connection[Any]) -> None:
    """Of the whole transaction or of a savepoint: what comes again is new."""
    assert once(connection, ID, consumer="billing")
    connection.rollback()
    with connection.transaction(force_rollback=True):
        assert once(connection, ID, consumer="billing")

    assert once(connection, ID, consumer="billing")


def test_a_mark_that_would_commit_by_itself_is_refused(database_url: str) -> None:
    """The work after it could fail, and the message would be lost; inside of a transaction autocommit does no harm."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(ConsumerError, match=r"^The mark would commit by itself, before the message is handled: open a transaction"):
            once(connection, ID, consumer="billing")
        with connection.transaction():
            assert once(connection, ID, consumer="billing")
        with connection.pipeline(), connection.transaction():
            assert not once(connection, ID, consumer="billing")


@pytest.mark.parametrize("name", ["", "x" * 256, "\N{EURO SIGN}" * 86, "a\0b", "\ud800"])
def test_a_name_that_cannot_be_noted_leaves_the_transaction_usable(connection: psycopg.Connection[Any], name: str) -> None:
    """It is refused before any SQL, whichever of the two it is."""
    for message_id, consumer in ((name, "billing"), (ID, name)):
        with pytest.raises(ConsumerError, match="must be text of 1 to 255 bytes"):
            once(connection, message_id, consumer=consumer)

    assert once(connection, "\N{EURO SIGN}" * 85, consumer="x" * 255)


@pytest.mark.parametrize("first_commits", [True, False])
async def test_a_concurrent_duplicate_waits_for_the_first(queue: Queue, first_commits: bool) -> None:
    """The duplicate then learns that the message was handled, or that it is its own turn."""
    async with _consumer(queue.url, "first") as first, _consumer(queue.url, "second") as second:
        assert await once_async(first, ID, consumer="billing")
        waiting = asyncio.create_task(once_async(second.cursor(), ID, consumer="billing"))
        await until(lambda: queue.is_held_up("second"))
        assert not waiting.done()

        await (first.commit() if first_commits else first.rollback())

        assert (not first_commits) == await waiting


async def test_an_async_mark_that_would_commit_by_itself_is_refused(database_url: str) -> None:
    """As with a sync connection."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        with pytest.raises(ConsumerError, match="commit by itself"):
            await once_async(connection, ID, consumer="billing")


@asynccontextmanager
async def _consumer(url: str, name: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    connection = await psycopg.AsyncConnection.connect(url, application_name=name)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("kind", [psycopg.ClientCursor, psycopg.RawCursor])
def test_the_connections_own_kind_of_cursor_does_not_matter(database_url: str, kind: Any) -> None:
    """Placeholders and binding are the helper's own business."""
    with psycopg.connect(database_url, cursor_factory=kind) as connection:
        assert once(connection, ID, consumer="billing")


def test_another_schema_is_named_by_the_caller(empty_database_url: str) -> None:
    """Several outboxes live in one database, and so do their consumers."""
    migrate(empty_database_url, schema='Odd "schema" 100%')
    with psycopg.connect(empty_database_url) as connection:
        assert once(connection, ID, consumer="billing", schema='Odd "schema" 100%')
        name = sql.Identifier('Odd "schema" 100%', "queue_message_received")
        assert (ID,) == connection.execute(sql.SQL("SELECT message_id FROM {}").format(name)).fetchone()


@pytest.mark.ids("A23")
def test_the_role_of_consumers_is_enough(database_url: str) -> None:
    """It marks, one or many at once, and sees which were new."""
    batch = """INSERT INTO queue_message_received (consumer, message_id) SELECT 'mail', unnest(%s::text[])
        ON CONFLICT DO NOTHING RETURNING message_id"""
    with login(database_url, "queue_message_consumer") as url, psycopg.connect(url) as connection:
        assert [True, False] == [once(connection, ID, consumer="billing") for _ in range(2)]
        assert [("a",), ("b",)] == connection.execute(batch.encode(), (["a", "b", "a"],)).fetchall()
        assert [("c",)] == connection.execute(batch.encode(), (["b", "c"],)).fetchall()


@pytest.mark.parametrize("value", [ID, ID.encode(), bytearray(ID.encode())])
def test_the_id_is_read_as_any_client_gives_it(value: object) -> None:
    """Text or bytes; it goes before the message_id, which an application chooses."""
    assert ID == relay_id({"x-relay-id": value, "other": 1}, "its own")


@pytest.mark.parametrize("headers", [None, {}, {"x-relay-id": ""}, {"x-relay-id": None}])
def test_without_the_header_the_message_id_stands_in(headers: dict[str, object] | None) -> None:
    """This is for messages that did not come through a relay. Without either, the id is unknown."""
    assert ["its own"] * 2 == [relay_id(headers, given) for given in ("its own", b"its own")]
    with pytest.raises(ConsumerError, match="did not come through a relay"):
        relay_id(headers)


def test_an_id_that_is_no_text_is_refused() -> None:
    """Rather than marked as something else."""
    with pytest.raises(ConsumerError):
        relay_id({"x-relay-id": 7})


async def test_marks_that_are_old_enough_are_deleted(queue: Queue) -> None:
    """In batches, the oldest first; 0 days keep all."""
    await queue.sql("""INSERT INTO queue_message_received (consumer, message_id, received_at)
        SELECT 'billing', n::text, now() - make_interval(days => 31, secs => n) FROM generate_series(1, 50001) n""")
    await queue.sql("INSERT INTO queue_message_received (consumer, message_id) VALUES ('billing', 'young')")
    retain = "SELECT action, target, messages FROM queue_message_retain() WHERE target = 'queue_message_received'"
    kept = "SELECT array_agg(message_id) FROM queue_message_received"

    await queue.sql("SELECT queue_message_config_set('received_retention_days', '0')")
    assert [] == await queue.sql(retain)
    await queue.sql("SELECT queue_message_config_set('received_retention_days', '30')")
    assert [("deleted", "queue_message_received", 50_000)] == await queue.sql(retain)
    assert {"1", "young"} == set(await queue.value(kept))
    assert [("deleted", "queue_message_received", 1)] == await queue.sql(retain)
    assert [] == await queue.sql(retain)
    assert ["young"] == await queue.value(kept)


@pytest.fixture
def example() -> str:
    """The example of docs/consumer.md."""
    page = (ROOT / "docs" / "consumer.md").read_text(encoding="utf-8")
    return page.partition("```python\n")[2].partition("```")[0]


async def test_a_message_that_comes_again_changes_nothing_a_second_time(
    example: str, queue: Queue, relays: Relays, topology: Topology, amqp_url: str
) -> None:
    """A consumer that dies between commit and acknowledgement, one that fails at first: one row each, by the page's example."""
    made = await topology.declare()
    await queue.sql("CREATE TABLE paid (invoice int, tried boolean)")
    await relays.start(database=queue.url, broker=amqp_url)
    failed: list[str | None] = []

    async def handle(connection: psycopg.AsyncConnection[Any], delivery: AbstractIncomingMessage) -> None:
        await connection.execute(b"INSERT INTO paid VALUES (%s)", (int(delivery.body),))
        if delivery.body == b"2" and not failed:
            failed.append(delivery.message_id)
            raise RuntimeError

    await queue.insert(exchange=made.exchange, routing_key=made.routing_key, content="1")
    await _handle_and_die(handle, made.queue, queue.url, amqp_url)
    names: dict[str, Any] = {"DATABASE_URL": queue.url, "AMQP_URL": amqp_url, "QUEUE": made.queue, "handle": handle}
    exec(compile(example, "docs/consumer.md", "exec"), names)  # noqa: S102 - our own page
    await queue.insert(exchange=made.exchange, routing_key=made.routing_key, content="2")
    await queue.insert(exchange=made.exchange, routing_key=made.routing_key, content="3")
    with pytest.raises(RuntimeError):
        await names["consume"]()
    consumer = asyncio.create_task(names["consume"]())

    async def all_came() -> bool:
        return bool([1, 2, 3] == await queue.value("SELECT array_agg(DISTINCT invoice ORDER BY invoice) FROM paid"))

    await until(all_came)
    consumer.cancel()
    await asyncio.wait([consumer])
    assert [(1,), (2,), (3,)] == await queue.sql("SELECT invoice FROM paid ORDER BY invoice")
    assert 3 == await queue.value("SELECT count(*) FROM queue_message_received WHERE consumer = 'billing'")


async def _handle_and_die(handle: Any, name: str, database: str, broker: str) -> None:
    """Take one delivery, commit what it does, and hang up without acknowledging it."""
    connection = await aio_pika.connect(broker)
    source = await (await connection.channel()).get_queue(name)
    async with source.iterator() as deliveries, _consumer(database, "dies") as own:
        delivery = await anext(deliveries)
        async with own.transaction():
            assert await once_async(own, relay_id(delivery.headers), consumer="billing")
            await handle(own, delivery)
        await connection.close()
