"""What the database does for a message while the broker says nothing, and how soon a consumer has it."""

from __future__ import annotations

import statistics
import time

import pytest

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, Relays

POLL = 30
"""Seconds between two looks of an idle relay, so that nothing but a notification can be the reason for a quick delivery."""
ASLEEP = 3
"""Seconds without a message after which the next look is two seconds away and more: the pauses between looks double."""
SWIFT = 0.5
"""Seconds from COMMIT to consumer at the median; 0.01 were seen on a quiet machine."""
OPEN = "SELECT application_name, state, query FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%%' AND xact_start < %s"
HELD = "SELECT count(*) FROM queue_message WHERE lock_expires_at IS NOT NULL"


@pytest.mark.ids("A7")
async def test_neither_transaction_nor_row_lock_is_held_while_publishing(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """The broker has the messages and does not answer: a claim is a column's value, and anybody may lock those rows."""
    async with Proxy.before(amqp_url) as proxy:
        relay = await relays.start(database=queue.url, broker=proxy.url(amqp_url))
        first = await queue.insert(exchange=inbox.exchange, routing_key=inbox.routing_key)
        await topology.drain(inbox.queue, 1)
        await queue.settled()
        proxy.hold_answers()
        sent = await queue.insert(50, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await until(lambda: topology.has(inbox.queue, 50))
        published = await queue.value("SELECT clock_timestamp()")
        await until(lambda: has_reported(queue, relay, published))

        assert 50 == await queue.value(HELD)
        assert [] == await queue.sql(OPEN, published)
        assert 50 == len(await queue.sql("SELECT id FROM queue_message FOR UPDATE NOWAIT"))
        proxy.heal()
        await queue.settled()
        assert sent == [message.message_id for message in await topology.drain(inbox.queue)]
    assert dict.fromkeys([*first, *sent], "success") == await queue.results()


async def has_reported(queue: Queue, relay: RelayProcess, moment: object) -> bool:
    """The relay has written a heartbeat since that moment."""
    return bool(await queue.value("SELECT heartbeat_at > %s FROM queue_message_relay WHERE id = %s", moment, relay.id))


@pytest.mark.slow
@pytest.mark.ids("B1")
async def test_a_consumer_has_a_message_soon_after_its_commit(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """The relay sleeps, the app commits, and the consumer has the message long before the relay would have looked by itself."""
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_POLL_INTERVAL": str(POLL)})
    latencies = []
    for _ in range(3):
        await until(lambda: is_asleep(queue, relay))
        await queue.insert(exchange=inbox.exchange, routing_key=inbox.routing_key)
        committed = time.monotonic()
        await topology.drain(inbox.queue, 1)
        latencies.append(time.monotonic() - committed)

    assert statistics.median(latencies) < SWIFT, latencies
    assert max(latencies) < POLL / 10, latencies


async def is_asleep(queue: Queue, relay: RelayProcess) -> bool:
    """The relay has had nothing to do for a while, and holds the gate: writers notify it."""
    gate = (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
    )
    if not await queue.value(gate + " AND application_name LIKE %s", f"outbox-relay/{relay.name} %") or await queue.waiting():
        return False
    rested = "SELECT now() - coalesce(max(archived_at), (SELECT started_at FROM queue_message_relay)) FROM queue_message_archive"
    return bool(await queue.value(f"SELECT ({rested}) > make_interval(secs => %s)", ASLEEP))
