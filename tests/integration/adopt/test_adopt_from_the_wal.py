"""Debezium reads the WAL: what it sees of its table ends exactly where our messages begin."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.applications.other_outboxes import DEBEZIUM, PAUSE
from tests.support.applications.outbox_writers import EACH_PHASE, Writers
from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Databases, Drain, Say

SLOT = "debezium"


class Connector:
    """Reads a slot through pgoutput as Debezium does, and keeps the rows inserted into its table, by the name that the WAL gives it.

    Args:
        queue: the database.
    """

    def __init__(self, queue: Queue) -> None:
        self._url = queue.url
        self._names: dict[int, str] = {}
        self.published: list[str] = []

    async def run(self, until: asyncio.Event) -> None:
        """Read until the event, and then on until nothing is left."""
        statement = "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'dbz')"
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            while True:
                last = until.is_set()
                cursor = await connection.execute(statement, [SLOT])
                for (data,) in await cursor.fetchall():
                    self._take(bytes(data))
                if last:
                    return
                await asyncio.sleep(PAUSE)

    def _take(self, data: bytes) -> None:
        if data[:1] == b"R":
            (oid,) = struct.unpack_from(">I", data, 1)
            schema, name, _ = data[5:].split(b"\0", 2)
            self._names[oid] = f"{schema.decode()}.{name.decode()}"
        elif data[:1] == b"I":
            (oid,) = struct.unpack_from(">I", data, 1)
            # After the oid: N, the number of columns, and of the first, which is the id, t and its length.
            (length,) = struct.unpack_from(">I", data, 9)
            if self._names[oid] == "public.outboxevent":
                self.published.append(data[13 : 13 + length].decode())


@pytest.fixture(scope="session")
def logical_server(say: Say) -> Iterator[devservers.Postgres]:
    """A private PostgreSQL whose WAL can be decoded."""
    with devservers.postgres(say=say, settings=["wal_level=logical"], private=True) as server:
        yield server


@pytest.fixture
async def logical_queue(logical_server: devservers.Postgres) -> AsyncIterator[Queue]:
    """A queue next to Debezium's table, with Debezium's slot and the publication of all tables that it creates by itself."""
    databases = Databases(logical_server.url)
    name = databases.create()
    migrate(databases.url(name))
    async with await psycopg.AsyncConnection.connect(databases.url(name), autocommit=True) as connection:
        queue = Queue(databases.url(name), connection)
        await queue.sql(DEBEZIUM.definition)
        await queue.sql("CREATE PUBLICATION dbz FOR ALL TABLES")
        await queue.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", SLOT)
        yield queue
        await queue.sql("SELECT pg_drop_replication_slot(%s)", SLOT)
    databases.drop(name)


async def test_each_committed_event_is_sent_once_by_debezium_or_by_us(
    logical_queue: Queue, relays: Relays, amqp_url: str, inbox: Declared, drain: Drain, chance: random.Random
) -> None:
    """Mirror, switch, finish and back under load, with transactions open across each boundary."""
    queue = logical_queue
    ours = await relays.start(database=queue.url, broker=amqp_url)
    debezium, ended = Connector(queue), asyncio.Event()
    writers = Writers(queue.url, DEBEZIUM, inbox, chance)
    where = ("--exchange", inbox.exchange, "--routing-key", inbox.routing_key)

    async def adopt(*words: str) -> str:
        return await relays.command("adopt", *words, database=queue.url)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(debezium.run(ended))
        writing = group.create_task(writers.run())
        await adopt("mirror", "debezium", "outboxevent", *where)
        await writers.more()
        await adopt("switch", "outboxevent")
        await writers.more()
        await adopt("finish", "outboxevent")
        await writers.more()
        await adopt("back", "outboxevent")
        await writers.more()
        writers.stop()
        await writing
        ended.set()
        await reading
    await queue.settled()
    await ours.stop()

    sent = [str(message.message_id) for message in await drain(inbox.queue)]
    assert min(len(sent), len(debezium.published)) > EACH_PHASE
    assert Counter(writers.committed) == Counter(sent) + Counter(debezium.published)


async def test_finishing_waits_for_the_slot(logical_queue: Queue, tmp_path: Path) -> None:
    """What was written before the switch and is not confirmed keeps the old relay needed; a slot of somebody else's need not."""
    queue, cli = logical_queue, Cli(logical_queue.url, tmp_path)
    await queue.connection.execute(DEBEZIUM.insert.encode(), DEBEZIUM.row("e", "k"))
    await queue.sql("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
    cli("adopt", "mirror", "debezium", "outboxevent", "--exchange", "e")
    cli("adopt", "switch", "outboxevent")
    assert "slot 'debezium' has not confirmed" in cli.refused("adopt", "finish", "outboxevent", code=1)
    assert "let the old relay read to the end" in cli.refused("adopt", "take", "outboxevent", code=1)

    connector, ended = Connector(queue), asyncio.Event()
    ended.set()
    await connector.run(ended)
    assert 1 == len(connector.published)
    assert ["other"] == cli.json("adopt", "list")[0]["behind"]
    assert "slot 'other' has not confirmed" in cli.refused("adopt", "finish", "outboxevent", code=1)
    assert "There is no logical replication slot 'none'" in cli.refused("adopt", "finish", "outboxevent", "--slot", "none", code=1)
    assert "may end" in cli("adopt", "finish", "outboxevent", "--slot", SLOT)
    await queue.sql("SELECT pg_drop_replication_slot('other')")
