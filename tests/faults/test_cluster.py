"""A cluster of three RabbitMQ nodes that loses one, and then its majority; the relay knows all three by its URL."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.rabbitmq_cluster import Node, cluster, hosts
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.faults.play import SMALL, WINDOW, producing
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.ledgers import Producer
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Say

RENEWED = "SELECT count(*) FROM queue_message WHERE lock_expires_at > now() AND created_at < now() - make_interval(secs => %s)"
"""Messages that have been in flight for that long, and are still locked."""
MOST_ATTEMPTS = "SELECT max(attempts) FROM queue_message_archive"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def nodes(say: Say, *, long_form: bool) -> Iterator[list[Node]]:
    """Three nodes; they take a minute to start and restart, so that the short form does without them."""
    if not long_form and "TEST_CLUSTER" not in os.environ:
        pytest.skip("a cluster takes minutes: make test-faults and make compatibility play it, and TEST_CLUSTER=1 does")
    with cluster("a", "b", "c", say=say) as made:
        yield made


@pytest.fixture
async def scene(
    relays: Relays,
    queue: Queue,
    nodes: list[Node],
    unique: str,
    chance: random.Random,
    record_property: Callable[[str, object], None],
    recovery: float,
    tmp_path: Path,
) -> AsyncIterator[Scene]:
    """As every fault's, with a quorum queue that has a member on each node; the node in the middle is the one that stays."""
    stays = nodes[1]
    record_property("versions", {"PostgreSQL": await queue.value("SHOW server_version"), "RabbitMQ": stays.installation.version})
    async with Topology(stays.url, unique) as topology:
        inbox: Declared = await topology.declare(arguments={"x-queue-type": "quorum"})
        with Producer(queue.url, inbox.exchange, tmp_path, chance) as producer:
            yield Scene(relays, queue, stays, topology, inbox, producer, chance, record_property, recovery)


async def archived(queue: Queue, more_than: int) -> bool:
    """More messages than that have been confirmed."""
    return bool(await queue.value("SELECT count(*) > %s FROM queue_message_archive", more_than))


async def goes_on(scene: Scene, count: int = 500) -> None:
    """So many more messages are confirmed."""
    before = await scene.queue.value("SELECT count(*) FROM queue_message_archive")
    await until(lambda: archived(scene.queue, before + count))


@pytest.mark.slow
@pytest.mark.fault(7, repeats=5)
@pytest.mark.ids("C7", "C9", "C14")
async def test_a_cluster_loses_a_node_and_then_its_majority(scene: Scene, nodes: list[Node]) -> None:
    """With two of three nodes confirms continue at the next host; with one, messages wait under renewed locks until another is back."""
    first, _, third = nodes
    relay = await scene.start(broker=hosts(nodes), **SMALL)
    assert f"127.0.0.1:{first.port}" == relay.of("broker_up")[0]["host"]
    async with producing(scene):
        await goes_on(scene)

        scene.producer.fault(WINDOW)
        await asyncio.to_thread(first.crash)
        assert f"127.0.0.1:{scene.broker.port}" == (await relay.logged("broker_up", 2))["host"]
        await goes_on(scene)

        scene.producer.fault(WINDOW)
        await asyncio.to_thread(third.crash)
        await until(lambda: silent(scene))
        assert await scene.waits_for_confirms(relay)
        await asyncio.to_thread(third.start)
        await goes_on(scene)

    await scene.queue.settled()
    await asyncio.to_thread(first.start)
    await scene.check(relay, timed=False)
    assert 1 == await scene.queue.value(MOST_ATTEMPTS)


async def silent(scene: Scene) -> bool:
    """Messages are held for twice the lock time."""
    return bool(await scene.queue.value(RENEWED, 2 * LOCK_SECONDS))
