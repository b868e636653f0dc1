"""A dump restored into a queue in use: applications insert and relays send while it comes in."""

from __future__ import annotations

import asyncio

import pytest

from relay import devservers
from tests.support.broker.topology import Declared, Topology
from tests.support.relays.processes import Relays
from tests.support.relays.sent import Sent, inserting, queue_at
from tests.support.servers.postgres_clusters import Cluster

SHORT = {"RELAY_POLL_INTERVAL": "1"}
ROUNDS = 50
"""Of restored messages, each with one of every key and one without."""
DATA = ("--data-only", "--disable-triggers", "-t", "queue_message")


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
@pytest.mark.parametrize("higher", [True, False], ids=["higher ids", "lower ids"])
async def test_a_dump_restored_while_others_insert_is_delivered(
    clusters: tuple[Cluster, Cluster],
    relays: Relays,
    own_broker: devservers.RabbitMQ,
    own_topology: Topology,
    inbox: Declared,
    *,
    higher: bool,
) -> None:
    """Each once; the dump's keys in their order, those of here in theirs, and what comes afterwards behind what it must follow."""
    there, here = clusters if higher else clusters[::-1]
    restored, live, late = (Sent(own_topology, inbox) for _ in range(3))
    source, target = there.new(), here.new()
    async with queue_at(source) as queue:
        await restored.insert(queue, ROUNDS, unkeyed=True)
    async with queue_at(target) as queue, queue_at(target) as application:
        for name in ("one", "two"):
            await relays.start(name, database=target, broker=own_broker.url, settings=SHORT)

        async with inserting(application, live):
            await asyncio.to_thread(here.restore, source, target, *DATA)
        await relays.command("migrate", database=target)
        assert not await queue.value("SELECT queue_message_has_foreign_ids()")
        await late.insert(queue, 10)

        await queue.settled(seconds=120)
    waiting = sum(len(one.ids) for one in (restored, live, late))
    came = [str(message.headers["x-relay-id"]) for message in await own_topology.drain(inbox.queue, waiting)]
    assert waiting == len(came)
    for one in (restored, live, late):
        one.in_order(came)
    before = (restored, live) if higher else (live,)  # lower ids are found within 10 seconds, and what comes meanwhile may go first
    for key, ids in late.keys.items():
        assert all(came.index(ids[0]) > max(map(came.index, one.keys[key])) for one in before)
