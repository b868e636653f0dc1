"""A connection that the broker refuses by policy: one sentence for each reason, and the connection as soon as the reason is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from relay.devservers import RabbitMQ
from relay.events.broker import BrokerDown, BrokerUp
from tests.support.broker.publishing import publishing

pytestmark = pytest.mark.faults


@pytest.fixture
def vhost_url(own_broker: RabbitMQ, unique: str) -> Iterator[str]:
    """URL of a vhost of this test's name, on the private node."""
    yield own_broker.add_vhost(unique)
    own_broker.delete_vhost(unique)


@pytest.mark.parametrize(
    ("refuse", "permit", "words"),
    [
        (
            "clear_permissions -p {0} guest",
            "set_permissions -p {0} guest .* .* .*",
            (
                "refused the vhost (530 NOT_ALLOWED - access to vhost '{0}' refused for user 'guest'): "
                "permit '{0}' to user 'guest' (rabbitmqctl set_permissions), or correct the AMQP URL."
            ),
        ),
        (
            'eval rabbit_vhost_sup_sup:stop_and_delete_vhost(<<"{0}">>).',
            "restart_vhost -p {0}",
            (
                "refused the vhost (541 INTERNAL_ERROR - access to vhost '{0}' refused for user 'guest': vhost '{0}' is down): "
                "start '{0}' again (rabbitmqctl restart_vhost), or see in the broker's log why it is down."
            ),
        ),
        (
            "delete_vhost {0}",
            "add_vhost {0}",
            "refused the vhost (530 NOT_ALLOWED - vhost {0} not found): create '{0}' (rabbitmqctl add_vhost), or correct the AMQP URL.",
        ),
    ],
    ids=["not permitted", "down", "missing"],
)
@pytest.mark.ids("C9")
async def test_a_vhost_that_is_refused_is_named_with_what_mends_it(
    own_broker: RabbitMQ, vhost_url: str, unique: str, refuse: str, permit: str, words: str
) -> None:
    """And waited for."""

    async def run(command: str) -> None:
        await asyncio.to_thread(own_broker.ctl, *command.format(unique).split(" "))

    await run(refuse)
    async with publishing(vhost_url, wait=False) as broker:
        down = await broker.seen.wait_for(BrokerDown)
        assert down.error.endswith(words.format(unique)), down.error
        await run(permit)
        if refuse.startswith("delete"):
            await run("set_permissions -p {0} guest .* .* .*")
        await broker.seen.wait_for(BrokerUp)
