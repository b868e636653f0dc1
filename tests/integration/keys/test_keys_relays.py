"""Relays send what is due under its key; idle ones ask for nothing."""

from __future__ import annotations

import json

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.keyed import fates, keyed, queued
from tests.support.database.queue import Queue, until
from tests.support.network.statement_proxy import Tap
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Say

RESTED = 3
"""Heartbeats, two seconds apart."""
NOWHERE = "amqp://guest:guest@127.0.0.1:1/"


@pytest.mark.ids("D7")
async def test_two_relays_send_bundles_once_and_in_time(relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say) -> None:
    """Each part once, in its order; one of the relays is killed on the way."""
    inbox = await topology.declare()
    first = await relays.start("first", database=queue.url, broker=amqp_url)
    await relays.start("second", database=queue.url, broker=amqp_url)
    to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}

    async def sent(count: int) -> bool:
        found = await queue.value("SELECT count(*) FROM queue_message_archive WHERE error_code = 'bundled'")
        return bool(found >= count)

    for n in range(20):
        await keyed(queue, bundle_key="b", content=n, **to)
    await until(lambda: sent(20))
    await queue.settled()
    await first.kill()
    for n in range(20, 40):
        await keyed(queue, bundle_key="b", content=n, **to)
    await until(lambda: sent(40))
    await queue.settled()

    came = [json.loads(message.body) for message in await topology.drain(inbox.queue)]
    assert [*range(40)] == [n for bundle in came for n in bundle]
    late = await queue.value(
        "SELECT max(extract(epoch FROM archived_at - created_at))::float8 FROM queue_message_archive WHERE error_code = 'bundled'"
    )
    say(f"40 parts in {len(came)} messages, {late:.2f} s from INSERT to bundle at most, of which 1 s is collecting")


async def test_a_broker_that_is_down_leaves_the_newest_alone(relays: Relays, queue: Queue, topology: Topology, amqp_url: str) -> None:
    """Versions that relays fold meanwhile replace each other, and one goes out when it is back."""
    inbox = await topology.declare()
    relay = await relays.start(database=queue.url, broker=NOWHERE, ready=False)
    ids = []
    for n in range(3):
        ids.append(await keyed(queue, coalesce_key="c", content=n, exchange=inbox.exchange, routing_key=inbox.routing_key))

        async def is_queued(id_: str = ids[-1]) -> bool:
            return [id_] == [found for found, _ in await queued(queue)]

        await until(is_queued)
    assert 0 == await relay.stop()
    await relays.start(database=queue.url, broker=amqp_url)
    assert [b"2"] == [message.body for message in await topology.drain(inbox.queue, 1)]
    await queue.settled()
    assert ["superseded", "superseded", None] == [code for id_ in ids for _, code, _ in [(await fates(queue))[id_]]]


@pytest.mark.ids("D2")
async def test_an_idle_relay_asks_nothing_for_a_message_that_is_not_due(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """When the next is due comes with the policy that it reads all the same; what is inserted meanwhile is heard of so too."""
    inbox = await topology.declare()
    await keyed(queue, coalesce_key="c", available_at=await queue.value("SELECT now() + interval '1 day'"))
    async with Tap.before(queue.url) as tap:
        await relays.start(database=tap.url(queue.url), broker=amqp_url)
        await until(lambda: len(tap.of("heartbeat")) > RESTED)
        assert [] == tap.of("fold_keys")

        await keyed(queue, coalesce_key="c", exchange=inbox.exchange, routing_key=inbox.routing_key)
        await topology.drain(inbox.queue, 1)
        beats = len(tap.of("heartbeat"))
        await until(lambda: len(tap.of("heartbeat")) > beats + RESTED)
        # One more where the policy was read while the first was under way.
        assert 1 <= len(tap.of("fold_keys")) <= 2
