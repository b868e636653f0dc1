"""Fixtures: a broker that tests may starve, freeze, kill and reconfigure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from aiormq.exceptions import AMQPError

from relay import local
from tests.support.broker import Topology
from tests.support.servers import Say


@pytest.fixture(scope="session")
def own_node(say: Say) -> Iterator[local.RabbitMQ]:
    """One private node for all of them; `own_broker` sees to it that it runs."""
    with local.rabbitmq(say=say, private=True) as node:
        yield node


@pytest.fixture
def own_broker(own_node: local.RabbitMQ) -> local.RabbitMQ:
    """A private node that runs and reads, whatever the test before did to it."""
    own_node.thaw()
    own_node.start()
    return own_node


@pytest.fixture
async def own_topology(own_broker: local.RabbitMQ, unique: str) -> AsyncIterator[Topology]:
    """Exchanges and queues of this test on the private node; the test may have cut the connection that would remove them."""
    made = await Topology(own_broker.url, unique).__aenter__()
    yield made
    own_broker.thaw()
    with suppress(AMQPError, RuntimeError, OSError):
        await made.__aexit__(None, None, None)
