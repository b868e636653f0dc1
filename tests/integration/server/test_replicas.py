"""Other servers that have the queue's tables: a standby that is read, a subscriber that follows, and a relay that is started there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from relay import devservers
from relay.devservers.borrowed import database_at
from relay.devservers.process import poll
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Databases, Drain, Say
from tests.support.servers.standby import Standby

PUBLICATION = "CREATE PUBLICATION queue FOR TABLE queue_message, queue_message_archive WITH (publish_via_partition_root = true)"
AHEAD = 2_000
"""Transactions by which the publisher is ahead."""
IDS = "SELECT array_agg(id::text ORDER BY id) FROM queue_message_archive"


@pytest.fixture(scope="module")
def publisher(say: Say) -> Iterator[devservers.Postgres]:
    """A server whose WAL can be decoded."""
    with devservers.postgres(say=say, private=True, settings=["wal_level=logical"]) as server:
        yield server


@pytest.fixture
def database_url(publisher: devservers.Postgres) -> Iterator[str]:
    """A fresh database with the schema on that server."""
    databases = Databases(publisher.url)
    url = databases.url(databases.create())
    migrate(url)
    yield url
    databases.drop_all()


@asynccontextmanager
async def subscriber(queue: Queue, say: Say) -> AsyncIterator[Queue]:
    """The queue on a second server, which has the schema and follows the rows of the first."""
    await queue.sql(PUBLICATION)
    with devservers.postgres(say=say, private=True) as server:
        migrate(server.url)
        async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as connection:
            await connection.execute(f"CREATE SUBSCRIPTION copy CONNECTION '{queue.url}' PUBLICATION queue".encode())
            yield Queue(server.url, connection)
            await connection.execute("DROP SUBSCRIPTION copy")


async def test_a_subscriber_gets_what_relays_make_of_the_queue(
    relays: Relays, queue: Queue, inbox: Declared, amqp_url: str, drain: Drain, say: Say
) -> None:
    """Claims, retries and settles of plain and ordered messages: the archive is the same, and the queue as empty."""
    to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
    async with subscriber(queue, say) as copy:
        relay = await relays.start(database=queue.url, broker=amqp_url)
        sent = await queue.insert(200, **to) + await queue.insert(50, **to, ordering_key="k")
        assert sorted(sent) == sorted(str(message.message_id) for message in await drain(inbox.queue, 250))
        await queue.settled()

        async def is_the_same() -> bool:
            return sorted(sent) == await copy.value(IDS) and not await copy.waiting()

        await until(is_the_same)
        assert 0 == await relay.stop()
        assert [] == relay.of("database_down") + relay.of("maintenance_failed")


async def test_a_relay_on_a_subscriber_sends_what_it_finds_there_once_more(
    relays: Relays, queue: Queue, inbox: Declared, amqp_url: str, drain: Drain, say: Say
) -> None:
    """Messages with ids that the subscriber has not reached wait until its queue is no longer filled. Nothing marks the others' origin."""
    for _ in range(AHEAD):
        await queue.sql("SELECT pg_current_xact_id()")
    async with subscriber(queue, say) as copy:
        sent = await queue.insert(20, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await copy.settled(20)
        there = await relays.start("astray", database=copy.url, broker=amqp_url)
        own = await copy.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key)
        assert own == [str(message.message_id) for message in await drain(inbox.queue, 1)]
        await copy.settled(20)
        assert 0 == await there.stop()

        await copy.sql("ALTER SUBSCRIPTION copy DISABLE")
        there = await relays.start("astray", database=copy.url, broker=amqp_url)
        await copy.settled()
        assert 0 == await there.stop()

        here = await relays.start(database=queue.url, broker=amqp_url)
        assert sorted(sent * 2) == sorted(str(message.message_id) for message in await drain(inbox.queue, 40))
        await queue.settled()
        assert 0 == await here.stop()


async def test_a_standby_says_how_the_queue_stands_and_refuses_a_relay(
    relays: Relays, queue: Queue, publisher: devservers.Postgres, amqp_url: str
) -> None:
    """`relay status` and `relay show` read it; `relay run` and commands that write name what it is in one sentence."""
    [id_] = await queue.insert()
    with Standby(publisher) as standby:
        url = database_at(standby.url, queue.connection.info.dbname)
        with psycopg.connect(url, autocommit=True) as connection:
            assert poll(lambda: connection.execute("SELECT count(*) FROM queue_message").fetchone() == (1,), seconds=60)
        assert "1 message" in await relays.command("status", database=url)
        assert "ready" in await relays.command("show", id_, database=url)

        relay = await relays.start(database=url, broker=amqp_url, ready=False)
        assert "PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary" in (await relay.logged("database_down"))["error"]
        await relay.kill()
        for words in (("pause", "orders"), ("migrate",), ("cancel", id_)):
            with pytest.raises(AssertionError, match=r"PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary"):
                await relays.command(*words, database=url)
