"""Limits that the broker sets: the relay names the limit it met, asks ever more rarely, repeats nothing, and continues when it can."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import aiormq
import pytest

from relay import devservers
from relay.devservers import RabbitMQ
from relay.events.broker import BrokerDown, BrokerUp, ChannelsLimited
from relay.message import CONFIRMED, Verdict
from tests.support.broker.publishing import claim, publishing
from tests.support.broker.topology import Topology
from tests.support.database.queue import until
from tests.support.network.proxy import Proxy
from tests.support.servers.private import user_of, version_of
from tests.support.servers.shared import Say

pytestmark = pytest.mark.faults
TRIES = 6
"""Logins after which the pauses between them are looked at."""
LEAST = 0.5
"""Seconds between the last two of them at least, on any machine; the first pauses are a tenth of that."""
TAKEN = 2
"""Connections that the node with a limit takes."""
SILENCE = "took the connection and does not answer: if it has reached its limit of connections (connection_max)"
ANSWER = (
    f"has no connection left on its node (530 NOT_ALLOWED - connection refused: node connection limit ({TAKEN}) is reached): "
    "close others, or raise connection_max in its configuration."
)
CHANNELS = 8
"""Channels that the node with a limit takes."""


@pytest.fixture
def user_url(own_broker: RabbitMQ, unique: str) -> Iterator[str]:
    """URL of a user with a vhost, both of this test's name."""
    with user_of(own_broker, unique, may_write=".*") as url:
        own_broker.ctl("add_vhost", unique)
        own_broker.ctl("set_permissions", "-p", unique, unique, "", ".*", "")
        yield url + unique
        own_broker.delete_vhost(unique)


@pytest.mark.parametrize("whose", ["user", "vhost"])
@pytest.mark.ids("C9")
async def test_a_user_or_vhost_without_a_connection_left_is_named_and_waited_for(
    own_broker: RabbitMQ, user_url: str, unique: str, whose: str
) -> None:
    """One sentence, growing pauses, nothing sent; the first login after the limit is raised goes through."""

    async def limit(connections: int) -> None:
        words = ("set_user_limits", unique) if whose == "user" else ("set_vhost_limits", "-p", unique)
        await asyncio.to_thread(own_broker.ctl, *words, json.dumps({"max-connections": connections}))

    await limit(0)
    async with Proxy.before(user_url) as proxy, publishing(proxy.url(user_url), wait=False) as broker:
        down = await broker.seen.wait_for(BrokerDown)
        assert f"has no connection left {'in' if whose == 'vhost' else 'for'} {whose} '{unique}' (530 NOT_ALLOWED - " in down.error
        assert f"connection limit (0) is reached): close others, or raise the {whose}'s limit (rabbitmqctl set_" in down.error
        await until(lambda: len(proxy.accepted) >= TRIES)
        assert proxy.accepted[TRIES - 1] - proxy.accepted[TRIES - 2] > LEAST
        [refused] = await broker.send([claim("amq.fanout")])
        assert (Verdict.UNWRITTEN, "broker_down") == (refused.verdict, refused.code)
        assert not broker.publisher.ready
        await limit(-1)
        await broker.seen.wait_for(BrokerUp)
        assert [CONFIRMED] == await broker.send([claim("amq.fanout", options='{"mandatory": false}')])


async def test_a_limit_that_is_set_below_what_there_is_ends_no_connection(own_broker: RabbitMQ, user_url: str, unique: str) -> None:
    """A publisher that has a connection keeps using it; limits of queues concern no relay, because a relay declares none."""
    async with publishing(user_url) as broker:
        for words in (("set_user_limits", unique), ("set_vhost_limits", "-p", unique)):
            await asyncio.to_thread(own_broker.ctl, *words, '{"max-connections": 0}')
        await asyncio.to_thread(own_broker.ctl, "set_vhost_limits", "-p", unique, '{"max-connections": 0, "max-queues": 0}')
        assert [CONFIRMED] == await broker.send([claim("amq.fanout", options='{"mandatory": false}')])
        assert [] == broker.seen.of(BrokerDown)


@pytest.fixture(scope="module")
def narrow_node(say: Say) -> Iterator[RabbitMQ]:
    """A node that answers few connections and leaves the others waiting."""
    with devservers.rabbitmq(say=say, private=True, config=f"connection_max = {TAKEN}\nnum_acceptors.tcp = 1\n") as node:
        yield node


async def test_a_node_that_takes_no_more_connections_is_named_and_waited_for(narrow_node: RabbitMQ, unique: str) -> None:
    """An old one leaves the connection without an answer; as soon as another one is closed the relay has its turn."""
    answers = version_of(narrow_node) >= (3, 11, 12)
    async with Topology(narrow_node.url, unique) as topology:
        made = await topology.declare()
        other = await aiormq.connect(narrow_node.url)
        async with publishing(narrow_node.url, wait=False) as broker:
            down = await broker.seen.wait_for(BrokerDown)
            assert (ANSWER if answers else SILENCE) in down.error
            await other.close()
            await broker.seen.wait_for(BrokerUp)
            claims = [claim(made.exchange, made.routing_key) for _ in range(100)]
            assert {Verdict.CONFIRMED} == {*await broker.verdicts(claims)}
        came = Counter(message.headers["x-relay-id"] for message in await topology.drain(made.queue))
    assert {one.id: 1 for one in claims} == came


@pytest.fixture
def few_channels(own_broker: RabbitMQ) -> Iterator[None]:
    """The node takes few channels, of all clients together; old versions do not know that limit."""
    own_broker.ctl("eval", f"application:set_env(rabbit, channel_max_per_node, {CHANNELS}).")
    yield
    own_broker.ctl("eval", "application:set_env(rabbit, channel_max_per_node, infinity).")


async def test_exchanges_share_what_channels_a_node_has(
    own_broker: RabbitMQ, own_topology: Topology, unique: str, few_channels: None
) -> None:
    """It is learned from a refusal like a user's limit, whatever the version writes around the number."""
    made = [await own_topology.declare(f"{unique}.{n}", f"{unique}.{n}") for n in range(20)]
    async with publishing(own_broker.url) as broker:
        # One after the other: the node counts channels a little later than it opens them.
        async with asyncio.timeout(60):
            for each in made:
                await broker.publisher.wait_ready()
                while [CONFIRMED] != await broker.send([claim(each.exchange, each.routing_key)]):
                    await broker.publisher.wait_ready()
        downs, limited = broker.seen.of(BrokerDown), broker.seen.of(ChannelsLimited)
    if version_of(own_broker) < (3, 12, 13):
        assert ([], []) == (downs, limited)
    else:
        assert "number of channels opened on node" in downs[0].error
        assert 1 <= limited[0].channels <= CHANNELS // 2
        assert limited[0].channels < limited[0].sharing <= len(made)
