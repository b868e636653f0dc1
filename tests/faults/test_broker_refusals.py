"""A broker that refuses: a full queue, unroutable messages that all have one id, a vhost without room for another connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.ledgers import Message
from tests.support.relays.scrape import HTTP, counted, metric

MOST = 50
"""Messages that a queue takes."""
EVERY = 10
"""One of so many messages is unroutable."""
TRIES = 6
"""Logins after which the pauses between them are looked at."""
LEAST = 0.5
"""Seconds between the last two of them at least, on any machine; the first pauses are a tenth of that."""


@pytest.mark.fault(12, repeats=20)
@pytest.mark.ids("C7", "C14")
async def test_what_a_full_queue_rejects_goes_out_in_order_when_there_is_room(scene: Scene) -> None:
    """Each nack is an attempt and a backoff; nothing overtakes its key, nothing comes twice, and nothing becomes dead."""
    await scene.configure(backoff_base=0.05, backoff_max=0.2, max_attempts=1_000_000)
    full = f"{scene.inbox.queue}.full"
    await scene.topology.declare(f"{scene.inbox.exchange}.full", full, arguments={"x-max-length": MOST, "x-overflow": "reject-publish"})
    scene.others.append(full)
    scene.producer.shape = lambda message: {**message, "exchange": f"{scene.inbox.exchange}.full"}
    relay = await scene.start(**SMALL_SEEN)
    await scene.producer.insert(400)
    await until(lambda: rejected(scene))
    assert await metric(relay, "relay_messages_total", result="retry") > 0
    assert re.search(r"[1-9]\d* delayed", await scene.status())

    async def has_gone() -> bool:
        await scene.producer.collect(scene.topology, full)
        return not await scene.queue.waiting()

    await until(has_gone)
    report = await scene.check(relay)
    assert 0 == report.duplicates
    assert [] == relay.of("message_dead")


async def rejected(scene: Scene) -> bool:
    """The queue is full, and the broker has said so of what came later."""
    nacked = await scene.queue.value("SELECT count(*) FROM queue_message WHERE last_error LIKE 'nacked:%'")
    return bool(nacked and await scene.topology.has(f"{scene.inbox.queue}.full", MOST))


@pytest.mark.fault(14, repeats=20)
@pytest.mark.ids("C7", "C14")
async def test_one_message_id_for_all_in_flight_hides_no_return(scene: Scene) -> None:
    """Of two thousand with one id and one key each tenth has no route: those and no others are rejected, and the rest arrive."""
    await scene.configure(unroutable="reject")
    number = count(1)

    def shape(message: Message) -> Message:
        astray = {"routing_key": "nowhere", "expect": "rejected"} if next(number) % EVERY == 0 else {}
        return {**message, "options": {"messageId": "the same", "correlationId": "the same"}, **astray}

    scene.producer.shape = shape
    relay = await scene.start(**HTTP)
    await scene.producer.insert(2000)
    await scene.queue.settled()
    assert 2000 / EVERY == await counted(relay, 2000 / EVERY, "relay_dead_total", code="unroutable")
    assert 0 == await metric(relay, "relay_messages_total", result="retry")
    assert f"{2000 // EVERY} dead messages are not acknowledged" in await scene.status()
    assert 0 == await relay.stop()
    report = await scene.report()
    assert [] == report.mismatches(), report
    assert (2000, 2000 // EVERY, 0) == (report.committed, report.dead, report.duplicates)
    assert {"unroutable"} == {line["code"] for line in relay.of("message_dead")}


@pytest.fixture
async def in_vhost(scene: Scene, unique: str) -> AsyncIterator[str]:
    """URL of a vhost with the exchange and its queue, which the scene then watches through a connection of its own."""
    url = scene.broker.add_vhost(unique)
    async with Topology(url, unique) as topology:
        scene.topology, scene.inbox = topology, await topology.declare(scene.inbox.exchange, scene.inbox.queue)
        yield url
    scene.broker.delete_vhost(unique)


async def limit(scene: Scene, vhost: str, connections: int) -> None:
    """Most connections to a vhost, -1 for any number."""
    await asyncio.to_thread(scene.broker.ctl, "set_vhost_limits", "-p", vhost, f'{{"max-connections": {connections}}}')


@pytest.mark.fault(28, repeats=20)
@pytest.mark.ids("C9")
async def test_a_vhost_without_room_for_a_connection_is_asked_ever_more_seldom(scene: Scene, in_vhost: str, unique: str) -> None:
    """A relay that has a connection continues. One that has none says why, in growing pauses, and joins as soon as there is room."""
    first = await scene.start("first", broker=in_vhost, **SMALL_SEEN)
    await limit(scene, unique, 2)
    async with Proxy.before(in_vhost) as proxy:
        way = {"database": scene.queue.url, "broker": proxy.url(in_vhost)}
        second = await scene.relays.start("second", **way, settings=SMALL_SEEN, ready=False)
        down = await second.logged("broker_down")
        assert re.search(r"has no connection left .*connection limit \(2\) is reached", down["error"]), down
        assert 0 == await metric(second, "relay_broker_up")
        await scene.producer.insert(200)
        await scene.queue.settled()
        await until(lambda: len(proxy.accepted) >= TRIES)
        before, last = proxy.accepted[TRIES - 2 : TRIES]
        assert last - before > LEAST
        assert "second: the broker is down or blocked" in await scene.status()
        await limit(scene, unique, -1)
        await second.logged("broker_up")
        assert 0 == await first.stop()
        await scene.producer.insert(200)
        report = await scene.check(second)
    assert 0 == report.duplicates
