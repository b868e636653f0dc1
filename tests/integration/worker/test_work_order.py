"""Workers and what lies between: ordering keys that keep their order, and PgBouncer between them and PostgreSQL."""

from __future__ import annotations

import json
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from aio_pika.abc import AbstractChannel

from tests.support.broker.topology import Declared
from tests.support.database.inboxes import publish
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.shared import Say

HANDLERS = """
import asyncio
from pathlib import Path


def note(*words):
    with Path("seen.txt").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


async def keyed(message):
    key, place = message.ordering_key, message.content["place"]
    note("begin", key, place)
    # Others begin meanwhile, if they may.
    await asyncio.sleep(0.01)
    note("end", key, place)
    if place == 2 and message.attempts == 1:
        raise ValueError("not yet")


async def book(message, connection):
    await connection.execute("INSERT INTO booking VALUES (%s)", (message.content["place"],))
"""
KEYS, EACH = ("a", "b", "c"), 8


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """The folder in which they stand."""
    (tmp_path / "handlers.py").write_text(textwrap.dedent(HANDLERS))
    return tmp_path


@pytest.mark.ids("C16")
async def test_messages_of_one_key_are_handled_one_after_the_other(
    relays: Relays, inbox_queue: Queue, handlers: Path, amqp_url: str
) -> None:
    """In their order, by two workers with ten handlers each, and after a failure from the one that failed."""
    await inbox_queue.sql("SELECT queue_message_config_set('backoff_base', '0.05')")
    for place in range(EACH):
        for key in KEYS:
            await inbox_queue.insert(content=json.dumps({"place": place}), ordering_key=key)
    for name in ("worker-1", "worker-2"):
        await relays.start(name, database=inbox_queue.url, broker=amqp_url, command=("work", "handlers:keyed"))
    await inbox_queue.settled(seconds=30)

    seen = [line.split() for line in (handlers / "seen.txt").read_text().splitlines()]
    tried = [0, 1, 2, 2, *range(3, EACH)]
    for key in KEYS:
        expected = [[what, key, str(place)] for place in tried for what in ("begin", "end")]
        assert expected == [line for line in seen if line[1] == key]
    # The keys do not wait for each other.
    assert any(first[0] == second[0] == "begin" for first, second in pairwise(seen))
    assert {"success": EACH * len(KEYS)} == dict(await inbox_queue.sql("SELECT result, count(*) FROM queue_message_archive GROUP BY 1"))


@pytest.mark.ids("C16")
async def test_receivers_and_workers_go_through_pgbouncer_in_transaction_mode(
    relays: Relays, inbox_queue: Queue, inbox: Declared, channel: AbstractChannel, amqp_url: str, handlers: Path, tmp_path: Path, say: Say
) -> None:
    """Without prepared statements, and with LISTEN past it: what was received once is booked once."""
    await inbox_queue.sql("CREATE TABLE booking (place integer)")
    with pgbouncer(inbox_queue.url, pool_mode="transaction", folder=tmp_path, say=say) as pooled:
        settings = {"RELAY_PREPARE": "false", "RELAY_LISTEN_URL": inbox_queue.url, "RELAY_RECEIVE_QUEUES": inbox.queue}
        both = [
            await relays.start(name, database=pooled, broker=amqp_url, settings=settings, command=command)
            for name, command in (("receiver", "receive"), ("worker", ("work", "handlers:book", "--transaction")))
        ]
        bodies = [b'{"place": %d}' % place for place in range(200)]
        await publish(channel, inbox, [*bodies, *bodies], ids=[str(place) for place in range(200)] * 2)

        async def booked() -> bool:
            return bool(await inbox_queue.value("SELECT count(*) >= 200 FROM queue_message_archive"))

        await until(booked, 60)
        assert [(place,) for place in range(200)] == await inbox_queue.sql("SELECT place FROM booking ORDER BY 1")
        assert [0, 0] == [await process.stop() for process in both]
    assert 0 == await inbox_queue.value("SELECT count(*) FROM queue_message")
