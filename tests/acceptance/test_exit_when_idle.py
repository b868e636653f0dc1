"""A relay that works until nothing is left, as a job of a scheduler."""

from __future__ import annotations

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import Relays

MIB = 1 << 20
BODY = "INSERT INTO queue_message (exchange, routing_key, body) SELECT %s, %s, decode(repeat('ab', %s), 'hex')"
SENT = "SELECT result, attempts FROM queue_message_archive"


async def test_a_relay_that_has_nothing_left_ends_by_itself(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """After all is sent and settled, with exit code 0 and nothing kept."""
    inbox = await topology.declare(unique, unique)
    await queue.insert(100, exchange=inbox.exchange, routing_key=inbox.routing_key)
    relay = await relays.start(database=queue.url, broker=amqp_url, ready=False, settings={"RELAY_EXIT_AFTER_IDLE": "1"})

    assert 0 == await relay.ended()
    assert [("idle", "drain")] == [(line["reason"], line["action"]) for line in relay.of("stopping")]
    assert [0] == [line["kept"] for line in relay.of("stopped")]
    assert [("success", 1)] * 100 == await queue.sql(SENT)
    assert 100 == await topology.waiting(inbox.queue)


async def test_a_relay_that_cannot_send_is_not_idle(relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str) -> None:
    """An exit would look like a success to the scheduler. The relay keeps trying, and ends after it has sent the messages."""
    inbox = await topology.declare(unique, unique)
    await queue.insert(3, exchange=inbox.exchange, routing_key=inbox.routing_key)
    async with Proxy.before(amqp_url) as proxy:
        await proxy.stop_listening()
        relay = await relays.start(database=queue.url, broker=proxy.url(amqp_url), ready=False, settings={"RELAY_EXIT_AFTER_IDLE": "0.1"})
        await relay.logged("broker_down", 3)
        assert [] == relay.of("stopping")
        await proxy.listen()
        assert 0 == await relay.ended()

    assert [("success", 1)] * 3 == await queue.sql(SENT)


@pytest.mark.slow
async def test_a_claim_on_its_way_is_no_idleness(relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str) -> None:
    """3.9 MB come with their claim, over a network of 1 MB a second: each run left before, put the message back, and ended well."""
    inbox = await topology.declare(unique, unique)
    await queue.sql(BODY, inbox.exchange, inbox.routing_key, 39 * MIB // 10)
    async with Proxy.before(queue.url) as proxy:
        proxy.rate = MIB
        relay = await relays.start(database=proxy.url(queue.url), broker=amqp_url, ready=False, settings={"RELAY_EXIT_AFTER_IDLE": "1"})
        assert 0 == await relay.ended()
        proxy.rate = 0

    assert [("success", 1)] == await queue.sql(SENT)


@pytest.mark.slow
async def test_a_payload_on_its_way_is_no_idleness(relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str) -> None:
    """12 MB over a network of 3 MB a second: it was called idle for what it waited for, and each run put the message back."""
    inbox = await topology.declare(unique, unique)
    await queue.sql(BODY, inbox.exchange, inbox.routing_key, 12 * MIB)
    async with Proxy.before(queue.url) as proxy:
        proxy.rate = 3 * MIB
        relay = await relays.start(database=proxy.url(queue.url), broker=amqp_url, ready=False, settings={"RELAY_EXIT_AFTER_IDLE": "1"})
        assert 0 == await relay.ended()
        proxy.rate = 0

    assert [("success", 1)] == await queue.sql(SENT)
