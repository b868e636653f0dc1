"""What a relay costs where one of its neighbours is slow, or its messages come one by one."""

from __future__ import annotations

import asyncio
import signal
import time

import psycopg
import pytest

from relay.amqp.publishing.barriers import MOST_UNSEEN
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.network.statement_proxy import Tap
from tests.support.relays.processes import Relays, cpu_seconds
from tests.support.servers.shared import Say

WINDOW = 4_000
BEATS = 2
"""Heartbeats, two seconds apart, over which is counted: soon after, the exchange counts as silent, and others have half of the window."""
BUSY = 0.2
"""Share of a core. Measured: 0.01 to 0.02, and 0.47 with a loop that asks the window again and again."""
STATEMENTS_PER_SECOND = 15.0
"""Measured: 7, of which a relay that rests asks 3."""
WRITERS = 8
EACH = 250
STATEMENTS = 40
"""Measured: 12 for 2,000 messages of as many transactions, with what a relay asks in that time anyway; 154 with claims of 30."""


@pytest.mark.ids("D2")
async def test_a_slow_broker_makes_no_busy_relay(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, say: Say
) -> None:
    """The window is full and more waits: nothing is asked again and again until the broker answers."""
    async with Proxy.before(amqp_url) as broker, Tap.before(queue.url) as tap:
        relay = await relays.start(database=tap.url(queue.url), broker=broker.url(amqp_url))
        await queue.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await queue.settled()
        broker.hold_answers()
        await queue.insert(2 * WINDOW, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await until(lambda: topology.has(inbox.queue, MOST_UNSEEN))
        await until(lambda: full(queue))
        cpu, asked, began, beats = cpu_seconds(relay.pid), len(tap.statements), time.monotonic(), len(tap.of("heartbeat"))
        await until(lambda: len(tap.of("heartbeat")) >= beats + BEATS)
        seconds = time.monotonic() - began
        cpu, asked = cpu_seconds(relay.pid) - cpu, len(tap.statements) - asked
        broker.heal()
        await queue.settled()

    say(f"{cpu / seconds:.1%} of a core, {asked / seconds:.1f} statements a second while the broker does not confirm")
    assert cpu < BUSY * seconds
    assert asked < STATEMENTS_PER_SECOND * seconds


async def full(queue: Queue) -> bool:
    """A relay has claimed most of a window."""
    claimed = await queue.value("SELECT count(*) FROM queue_message WHERE lock_expires_at IS NOT NULL")
    return bool(claimed >= WINDOW * 3 // 4)


@pytest.mark.ids("D2")
async def test_messages_go_on_while_settles_wait(relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str) -> None:
    """Somebody holds up the archive: the broker gets most of a window before the first message is settled."""
    relay = await relays.start(database=queue.url, broker=amqp_url)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("LOCK TABLE queue_message_archive IN SHARE MODE")
        await queue.insert(WINDOW, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await until(lambda: topology.has(inbox.queue, WINDOW * 3 // 4))
        assert WINDOW == await queue.waiting()
    await queue.settled()
    assert 0 == await relay.stop()


@pytest.mark.ids("D2")
async def test_many_small_transactions_share_few_statements(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, say: Say
) -> None:
    """What committed one by one while the relay was away is claimed and settled together."""
    del topology
    async with Tap.before(queue.url) as tap:
        relay = await relays.start(database=tap.url(queue.url), broker=amqp_url)
        await until(lambda: len(tap.of("heartbeat")) > 1)
        relay.send(signal.SIGSTOP)
        await asyncio.gather(*(_insert_one_by_one(queue.url, inbox) for _ in range(WRITERS)))
        asked = len(tap.statements)
        relay.send(signal.SIGCONT)
        await queue.settled()
        asked = len(tap.statements) - asked

    say(f"{asked} statements for {WRITERS * EACH} messages of as many transactions")
    assert asked <= STATEMENTS


async def _insert_one_by_one(url: str, inbox: Declared) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for number in range(EACH):
            statement = "INSERT INTO queue_message (exchange, routing_key, content) VALUES (%s, %s, jsonb_build_object('n', %s::int))"
            await connection.execute(statement, [inbox.exchange, inbox.routing_key, number])
