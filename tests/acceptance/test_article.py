"""The article's own experiment: plain INSERTs, several relays, and each committed row one message on its exchange."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import sql

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue
from tests.support.relays.processes import RelayProcess, Relays

INSERT = (
    "INSERT INTO queue_message (exchange, routing_key, content) "
    "VALUES ('amq.direct', 'queue_message_test', jsonb_build_object('value', nextval('queue_message_test_seq')))"
)
LONGEST_PAUSE = 0.007
"""Seconds; the random pauses are the article's, so that commits fall between and into the looks of the relays."""
WRITERS = 4
"""Connections that insert side by side, so that transactions overlap."""


@pytest.fixture
async def inbox(vhost_url: str, queue: Queue) -> AsyncIterator[Topology]:
    """The article's queue behind `amq.direct`, in a vhost of this test's own, and its sequence."""
    await queue.sql("CREATE SEQUENCE queue_message_test_seq")
    async with Topology(vhost_url, "article") as topology:
        await topology.declare("amq.direct", "queue_message_test", routing_key="queue_message_test")
        yield topology


async def insert(url: str, count: int) -> None:
    """The article's statement, word for word, in a transaction of its own each time, after a random pause."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(count):
            await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
            await connection.execute(INSERT)


async def insert_all(url: str, count: int) -> None:
    """Insert from several connections at once."""
    async with asyncio.TaskGroup() as writers:
        for _ in range(WRITERS):
            writers.create_task(insert(url, count // WRITERS))


async def run_relays(relays: Relays, count: int, database: str, broker: str) -> list[RelayProcess]:
    """Start relays side by side."""
    return await asyncio.gather(*(relays.start(f"relay-{number}", database=database, broker=broker) for number in range(count)))


@pytest.mark.ids("A18", "C1", "C5", "C11", "C12", "C17", "D3")
@pytest.mark.parametrize("truncate", ["TRUNCATE queue_message", "TRUNCATE queue_message RESTART IDENTITY"])
@pytest.mark.parametrize(("listeners", "messages"), [(2, 100), (4, 2000)])
async def test_each_inserted_row_becomes_one_message(
    relays: Relays, queue: Queue, inbox: Topology, vhost_url: str, listeners: int, messages: int, truncate: str
) -> None:
    """No row is missing and none comes twice, although the table is emptied and its numbers begin again while the relays run."""
    running = await run_relays(relays, listeners, queue.url, vhost_url)
    await insert_all(queue.url, 100)
    await inbox.drain("queue_message_test", 100)
    await queue.settled()
    await queue.connection.execute(sql.SQL(truncate))

    await insert_all(queue.url, messages)
    came = await inbox.drain("queue_message_test", messages, seconds=60)

    await queue.settled()
    assert [0] * listeners == [await relay.stop() for relay in running]
    assert [] == await inbox.drain("queue_message_test")
    assert list(range(101, 101 + messages)) == sorted(json.loads(message.body)["value"] for message in came)
    assert {"success": messages + 100} == dict(await queue.sql("SELECT result, count(*) FROM queue_message_archive GROUP BY result"))
    # On a slow machine a claim may fail while TRUNCATE holds its lock. The relay then tries again.
    told = [line for relay in running for line in relay.lines if line["level"] != "info"]
    assert [] == [line for line in told if not line.get("error", "").startswith("Another session holds a lock on the queue;")]
