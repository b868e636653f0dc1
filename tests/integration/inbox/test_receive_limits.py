"""`relay receive` for a user who may have few channels, or no connection: every queue has its turn, nothing is lost, and it says so."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from relay.devservers import RabbitMQ
from tests.support.broker.topology import Topology
from tests.support.database.inboxes import Start, emptied, publish, received
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.relays.scrape import HTTP, page
from tests.support.servers.private import user_of

pytestmark = [pytest.mark.faults, pytest.mark.ids("C16")]

USER = ("max-channels", "user")
QUEUES = 5
EACH = 20
TRIES = 5
"""Logins after which the pause between two of them is looked at."""
LEAST = 0.3
"""Seconds between the last two at least, on any machine; the first pause is a tenth of that."""

Limit = Callable[..., Awaitable[None]]


@pytest.fixture
def reader_url(own_broker: RabbitMQ, unique: str) -> Iterator[str]:
    """URL of a user of this test's name who may read every queue."""
    with user_of(own_broker, unique, may_write="") as url:
        own_broker.ctl("set_permissions", "-p", "/", unique, "", "", ".*")
        yield url


@pytest.fixture
def limit(own_broker: RabbitMQ, unique: str) -> Iterator[Limit]:
    """Sets a limit of the user, of the vhost for all users, or of what the node agrees to with each new connection."""

    async def limit(name: str, most: int, whose: str = "user") -> None:
        words = {
            "user": ("set_user_limits", unique, json.dumps({name: most})),
            "vhost": ("set_vhost_limits", "-p", "/", json.dumps({name: most})),
            "node": ("eval", f"application:set_env(rabbit, {name}, {most})."),
        }[whose]
        await asyncio.to_thread(own_broker.ctl, *words)

    yield limit
    own_broker.ctl("set_vhost_limits", "-p", "/", '{"max-connections": -1}')
    own_broker.ctl("eval", "application:set_env(rabbit, channel_max, 2047).")


@pytest.fixture
async def own_channel(own_broker: RabbitMQ) -> AsyncIterator[AbstractChannel]:
    """A channel on the private node to publish on."""
    async with await aio_pika.connect(own_broker.url) as connection:
        yield await connection.channel()


async def filled(topology: Topology, channel: AbstractChannel, unique: str) -> list[Any]:
    """Queues of two kinds, each with messages."""
    kinds = ("classic", "quorum")
    made = [await topology.declare(f"{unique}.{n}", f"{unique}.{n}", arguments={"x-queue-type": kinds[n % 2]}) for n in range(QUEUES)]
    for each in made:
        await publish(channel, each, [str(number).encode() for number in range(EACH)], ids=[f"{each.queue}.{n}" for n in range(EACH)])
    return made


@pytest.mark.parametrize(("most", "of"), [(1, USER), (4, USER), (2, ("channel_max", "node"))])
async def test_queues_take_turns_at_the_channels_that_there_are(
    start_receive: Start, own_topology: Topology, own_channel: AbstractChannel, inbox_queue: Queue, reader_url: str, unique: str,
    limit: Limit, most: int, of: tuple[str, str],
) -> None:  # fmt: skip
    """What came before and what comes later, of every queue, once each; a missing queue keeps no other from its turn."""
    made = await filled(own_topology, own_channel, unique)
    await limit(of[0], most, of[1])
    receiver = await start_receive(f"{unique}.missing", *(each.queue for each in made), broker=reader_url, settings=HTTP)
    await received(inbox_queue, QUEUES * EACH)
    # RabbitMQ 3.10 counts channels a moment after it opens them, and may grant too many at first. The missing queue asks for one again.
    await receiver.logged("channels_limited")
    for each in made:
        await publish(own_channel, each, [b"1"], ids=[f"{each.queue}.late"])
    await received(inbox_queue, QUEUES * (EACH + 1))
    for each in made:
        await emptied(own_channel, each.queue)

    limited = receiver.of("channels_limited")
    assert 1 == len(limited), limited
    assert 1 <= limited[0]["channels"] <= most
    assert QUEUES + 1 == limited[0]["sharing"]
    assert len(receiver.of("broker_down")) <= (3 if of == USER else 0)
    assert f"at which {QUEUES + 1} exchanges or queues take turns" in (await page(receiver, "/readyz"))
    assert 0 == await receiver.stop()
    rows = await inbox_queue.sql("SELECT exchange, count(*) FROM queue_message GROUP BY exchange")
    assert {each.exchange: EACH + 1 for each in made} == dict(rows)
    assert 0 == Counter(line["event"] for line in receiver.lines if "event" in line)["queue_narrowed"]


@pytest.mark.parametrize("whose", ["user", "vhost"])
async def test_a_receiver_without_a_connection_waits_and_loses_nothing(
    start_receive: Start, own_topology: Topology, own_channel: AbstractChannel, inbox_queue: Queue, reader_url: str, unique: str,
    limit: Limit, whose: str,
) -> None:  # fmt: skip
    """It names the limit in growing pauses, and takes what has come meanwhile as soon as there is room; so does one that was cut off."""
    made = await own_topology.declare()
    await limit("max-connections", 0, whose)
    async with Proxy.before(reader_url) as proxy:
        receiver = await start_receive(made.queue, broker=proxy.url(reader_url), ready=False)
        down = await receiver.logged("broker_down")
        assert f"has no connection left {'for user' if whose == 'user' else 'in vhost'}" in down["error"]
        await publish(own_channel, made, [b"1", b"2"])
        await until(lambda: len(proxy.accepted) >= TRIES)
        assert proxy.accepted[TRIES - 1] - proxy.accepted[TRIES - 2] > LEAST
        await limit("max-connections", -1, whose)
        await received(inbox_queue, 2)

        await limit("max-connections", 0, whose)
        proxy.reset()
        await receiver.logged("broker_down", len(receiver.of("broker_down")) + 1)
        await publish(own_channel, made, [b"3"])
        await limit("max-connections", -1, whose)
        await received(inbox_queue, 3)
        await emptied(own_channel, made.queue)
    assert 0 == await receiver.stop()
    assert [(1,), (2,), (3,)] == await inbox_queue.sql("SELECT content FROM queue_message ORDER BY content::text")
