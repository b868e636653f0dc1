"""Fixtures: servers of the tests' own: a broker to starve, freeze, kill and reconfigure, and a PostgreSQL that prepares transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import pytest
from aiormq.exceptions import AMQPError

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Topology
from tests.support.servers.shared import Databases, Say


@pytest.fixture(scope="session")
def own_node(say: Say) -> Iterator[devservers.RabbitMQ]:
    """One private node for all of them; `own_broker` sees to it that it runs."""
    with devservers.rabbitmq(say=say, private=True) as node:
        yield node


@pytest.fixture
def own_broker(own_node: devservers.RabbitMQ) -> devservers.RabbitMQ:
    """A private node that runs and reads, whatever the test before did to it."""
    own_node.thaw()
    own_node.start()
    return own_node


@pytest.fixture
async def own_topology(own_broker: devservers.RabbitMQ, unique: str) -> AsyncIterator[Topology]:
    """Exchanges and queues of this test on the private node; the test may have cut the connection that would remove them."""
    made = await Topology(own_broker.url, unique).__aenter__()
    yield made
    own_broker.thaw()
    with suppress(AMQPError, RuntimeError, OSError):
        await made.__aexit__(None, None, None)


def version_of(node: devservers.RabbitMQ) -> tuple[int, ...]:
    """The version of a node's RabbitMQ."""
    return tuple(int(part) for part in node.installation.version.split(".")[:3])


@contextmanager
def user_of(broker: devservers.RabbitMQ, name: str, *, may_write: str) -> Iterator[str]:
    """URL of a user who may write to exchanges of such names, and do nothing else."""
    broker.ctl("add_user", name, "secret")
    broker.ctl("set_permissions", "-p", "/", name, "", may_write, "")
    try:
        yield broker.url.replace("guest:guest", f"{name}:secret")
    finally:
        broker.ctl("delete_user", name)


@pytest.fixture(scope="session")
def preparing_server(say: Say) -> Iterator[devservers.Postgres]:
    """A private PostgreSQL on which transactions may be prepared."""
    with devservers.postgres(say=say, settings=["max_prepared_transactions=50"], private=True) as server:
        yield server


@pytest.fixture
def preparing_url(preparing_server: devservers.Postgres) -> str:
    """URL of a fresh database with the schema, in which transactions may be prepared."""
    databases = Databases(preparing_server.url)
    url = databases.url(databases.create())
    migrate(url)
    return url
