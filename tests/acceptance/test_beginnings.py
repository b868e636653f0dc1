"""A relay that comes before its servers, several outboxes in one database, and how soon a message is seen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.shared import Databases

ASLEEP = "6 s"
"""After the start. The pauses between looks double from 0.01 s to the poll interval, so the next look is due at about 10 s."""
WRONG = "wrong-secret"
ODD = 'Ünusual "schema" 100%'
QUOTED = '"' + ODD.replace('"', '""') + '"'


@pytest.fixture
def absent(databases: Databases) -> Iterator[str]:
    """URL of a database that is not there yet."""
    name = databases.create()
    databases.drop(name)
    yield databases.url(name)
    databases._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def expect_rare_lines(relay: RelayProcess) -> None:
    """No more than a line a second, give or take the edges of a second, and each a single sentence."""
    told = [line for line in relay.lines if line.get("level") == "warning"]
    for event in {line["event"] for line in told}:
        moments = [line["timestamp"][:19] for line in told if line["event"] == event]
        assert all(moments.count(moment) <= 2 for moment in moments), told
    assert all("\n" not in line["error"] for line in told if "error" in line)


async def error_with(relay: RelayProcess, event: str, words: str) -> dict[str, Any]:
    """Wait until an event was logged whose sentence holds the words."""
    count = 1
    async with asyncio.timeout(30):
        while words not in (line := await relay.logged(event, count))["error"]:
            count += 1
    return line


@pytest.mark.ids("A17", "C8", "C10")
async def test_a_relay_waits_for_database_schema_and_broker(
    relays: Relays, databases: Databases, absent: str, amqp_url: str, topology: Topology, inbox: Declared
) -> None:
    """Each that is missing is named in a sentence, at most once a second; then everything that waited is sent."""
    async with Proxy.before(absent) as database, Proxy.before(amqp_url) as broker:
        await database.stop_listening()
        await broker.stop_listening()
        relay = await relays.start(database=database.url(absent), broker=broker.url(amqp_url), ready=False)
        await error_with(relay, "database_down", "PostgreSQL does not answer")
        await database.listen()
        await error_with(relay, "database_down", "The database does not exist: create it or correct RELAY_DATABASE_URL")
        databases._run("CREATE DATABASE {}", absent.rpartition("/")[2])
        await error_with(relay, "database_down", "run `relay migrate`")
        await relays.command("migrate", database=absent)
        async with await psycopg.AsyncConnection.connect(absent, autocommit=True) as connection:
            queue = Queue(absent, connection)
            sent = await queue.insert(5, exchange=inbox.exchange, routing_key=inbox.routing_key)
            await relay.logged("started")
            await relay.logged("broker_down")
            await broker.listen()

            assert sent == [message.message_id for message in await topology.drain(inbox.queue, 5)]
            assert 0 == await relay.stop()
    expect_rare_lines(relay)


@pytest.mark.ids("C10")
async def test_wrong_passwords_are_named_and_not_shown(relays: Relays, queue: Queue, amqp_url: str) -> None:
    """The log says which server refused and what to correct, and contains no password."""
    relay = await relays.start("one", database=make_conninfo(queue.url, password=WRONG), broker=amqp_url, ready=False)
    await error_with(relay, "database_down", "PostgreSQL refused the password: correct RELAY_DATABASE_URL")
    other = await relays.start("two", database=queue.url, broker=re.sub(r"//([^:]+):[^@]+@", rf"//\1:{WRONG}@", amqp_url), ready=False)
    await error_with(other, "broker_down", "correct user and password in the AMQP URL")
    assert [0, 0] == [await relay.stop(), await other.stop()]
    assert not any(WRONG in str(line) for line in [*relay.lines, *other.lines])
    for each in (relay, other):
        expect_rare_lines(each)


@pytest.mark.ids("A31", "D4")
async def test_two_outboxes_live_side_by_side(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, unique: str
) -> None:
    """A second schema with the oddest name has a queue, relays and policy of its own."""
    other = await topology.declare(f"{unique}.other", f"{unique}.others")
    await relays.command("migrate", database=queue.url, settings={"RELAY_SCHEMA": ODD})
    await queue.sql("SELECT queue_message_config_set('unroutable', 'accept')")
    await queue.sql(f"SELECT {QUOTED}.queue_message_config_set('unroutable', 'reject')")
    first = await relays.start("first", database=queue.url, broker=amqp_url)
    second = await relays.start("second", database=queue.url, broker=amqp_url, settings={"RELAY_SCHEMA": ODD})
    await until(lambda: hold_both_gates(queue))
    plain = await queue.insert(10, exchange=inbox.exchange, routing_key=inbox.routing_key)
    await queue.insert(exchange=inbox.exchange, routing_key="nowhere")
    await queue.sql("SELECT set_config('search_path', %s, false)", QUOTED)
    odd = await queue.insert(10, exchange=other.exchange, routing_key=other.routing_key)
    await queue.insert(exchange=other.exchange, routing_key="nowhere")

    assert plain == [message.message_id for message in await topology.drain(inbox.queue, 10)]
    assert odd == [message.message_id for message in await topology.drain(other.queue, 10)]
    await until(lambda: are_empty(queue))
    assert [0, 0] == [await first.stop(), await second.stop()]
    ended = "SELECT handled_by, result, count(*) FROM {}.queue_message_archive GROUP BY 1, 2 ORDER BY 3"
    assert [("first", "success", 11)] == await queue.sql(ended.format("public"))
    assert [("second", "rejected", 1), ("second", "success", 10)] == await queue.sql(ended.format(QUOTED))


async def are_empty(queue: Queue) -> bool:
    """Both outboxes are through, with what no queue takes too."""
    return [(0, 0)] == await queue.sql(f"SELECT (SELECT count(*) FROM public.queue_message), (SELECT count(*) FROM {QUOTED}.queue_message)")


async def hold_both_gates(queue: Queue) -> bool:
    """Each outbox has a relay that sleeps, and whom its own writers wake."""
    holds = "(SELECT count(*) FROM {}.queue_message_relay WHERE state ->> 'listen' = 'up, holds the gate')"
    return [(1, 1)] == await queue.sql(f"SELECT {holds.format('public')}, {holds.format(QUOTED)}")


@pytest.mark.ids("A3", "A4", "B12", "C4")
@pytest.mark.parametrize(("mode", "listen", "poll"), [("idle", "up, holds the gate", 30), ("always", "up", 30), ("off", "off", 0.5)])
async def test_a_message_is_seen_at_once_or_at_the_next_look(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, mode: str, listen: str, poll: float
) -> None:
    """A notification wakes a relay that would look seconds later; without notifications the poll finds it in time."""
    await queue.sql("SELECT queue_message_config_set('notify', %s)", mode)
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_POLL_INTERVAL": str(poll)})

    async def sleeps() -> bool:
        row = "SELECT state ->> 'listen' = %s AND (%s = 'off' OR now() > started_at + %s::interval) FROM queue_message_relay WHERE id = %s"
        return bool(await queue.value(row, listen, mode, ASLEEP, relay.id))

    await until(sleeps)
    await queue.insert(exchange=inbox.exchange, routing_key=inbox.routing_key)
    await topology.drain(inbox.queue, 1)
    assert 0 == await relay.stop()
    latency = "SELECT extract(epoch FROM published_at - created_at)::float8 FROM queue_message_archive"
    assert await queue.value(latency) < 1.5
