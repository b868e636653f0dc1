"""Servers that these tests may kill, stop and starve, and the scene that every fault is played on."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue
from tests.support.faults.scene import BY_ALL_MEANS, LOCK_SECONDS, RECOVERY, Scene
from tests.support.relays.ledgers import Producer
from tests.support.relays.processes import Relays
from tests.support.relays.sent import Sent
from tests.support.servers.postgres_clusters import Cluster, two_clusters
from tests.support.servers.shared import Databases, Say

HAD_TIME = os.getloadavg()[0] < (os.cpu_count() or 1)
"""When the tests began no more processes wanted the processor than there are."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a fault, and waits several times for what a busy machine does late."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def recovery(*, long_form: bool) -> float:
    """In which time what a dead relay held must be out again: as promised in the long form on a machine that has time."""
    return RECOVERY if long_form and HAD_TIME else BY_ALL_MEANS


@pytest.fixture
async def scene(
    relays: Relays,
    queue: Queue,
    own_broker: devservers.RabbitMQ,
    own_topology: Topology,
    inbox: Declared,
    chance: random.Random,
    record_property: Callable[[str, object], None],
    recovery: float,
    tmp_path: Path,
) -> AsyncIterator[Scene]:
    """Everything that a fault needs."""
    record_property("versions", {"PostgreSQL": await queue.value("SHOW server_version"), "RabbitMQ": own_broker.installation.version})
    with Producer(queue.url, inbox.exchange, tmp_path, chance) as producer:
        yield Scene(relays, queue, own_broker, own_topology, inbox, producer, chance, record_property, recovery)


@pytest.fixture(scope="session")
def own_postgres(say: Say) -> Iterator[devservers.Postgres]:
    """A private PostgreSQL; `database_url` sees to it that it runs."""
    with devservers.postgres(say=say, private=True) as server:
        yield server


@pytest.fixture
def database_url(own_postgres: devservers.Postgres) -> Iterator[str]:
    """A fresh database with the schema and short locks, on the private server; in the end it holds nothing that no relay would find."""
    own_postgres.thaw()
    own_postgres.start()
    databases = Databases(own_postgres.url)
    name = databases.create()
    migrate(databases.url(name), schema="public", seed={"lock_seconds": str(LOCK_SECONDS)})
    yield databases.url(name)
    own_postgres.thaw()
    own_postgres.start()
    try:
        assert_nothing_is_lost(databases.url(name))
    finally:
        databases.drop(name)


@pytest.fixture
async def inbox(own_topology: Topology) -> Declared:
    """An exchange and the queue behind it."""
    return await own_topology.declare()


@pytest.fixture
def sent(own_topology: Topology, inbox: Declared) -> Sent:
    """Messages of keys, of which nothing is sent yet."""
    return Sent(own_topology, inbox)


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """One with high transaction ids and one with low ones, which take part in logical replication."""
    with two_clusters("wal_level=logical") as both:
        yield both
