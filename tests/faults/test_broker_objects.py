"""What a message needs at the broker is taken away while the message is in flight, and comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import aio_pika
import pytest

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN, WINDOW, play
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.ledgers import Message
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import metric, shows_flow

PATIENT = {"backoff_base": 0.05, "backoff_max": 0.5, "max_attempts": 1_000_000}
"""Nothing becomes dead, and what can be sent again is sent soon."""
SPOILED = "SELECT DISTINCT split_part(last_error, ':', 1) FROM queue_message WHERE exchange = %s AND last_error IS NOT NULL"
UNTOUCHED = "SELECT max(attempts) FROM queue_message_archive WHERE exchange = %s"
CODES = {"exchange": "exchange_missing", "queue": "unroutable", "binding": "unroutable"}
"""What a message of an exchange meets when the thing of that name is gone."""


def spread(exchanges: Sequence[str]) -> Callable[[Message], Message]:
    """Messages by turns for each exchange; an ordering key stays with one."""
    turn = 0

    def shape(message: Message) -> Message:
        nonlocal turn
        turn += 1
        number = int(message["key"].rpartition("-")[2]) if "key" in message else turn
        return {**message, "exchange": exchanges[number % len(exchanges)]}

    return shape


class Removals:
    """Exchanges, each with a queue, of which parts are taken away and brought back."""

    def __init__(self, scene: Scene, channel: aio_pika.abc.AbstractChannel, made: dict[str, Declared]) -> None:
        self.scene, self.channel, self.made = scene, channel, made

    async def remove(self) -> None:
        """Take away an exchange, a queue, a binding; what was in that queue is with the consumer first."""
        await self.scene.producer.collect(self.scene.topology, self.made["queue"].queue)
        await self.channel.exchange_delete(self.made["exchange"].exchange)
        await self.channel.queue_delete(self.made["queue"].queue)
        queue = await self.channel.get_queue(self.made["binding"].queue)
        await queue.unbind(self.made["binding"].exchange, self.made["binding"].routing_key)

    async def restore(self) -> None:
        """Bring everything back."""
        for made in self.made.values():
            exchange = await self.channel.declare_exchange(made.exchange, "direct", durable=True)
            queue = await self.channel.declare_queue(made.queue, durable=True)
            await queue.bind(exchange, made.routing_key)

    async def spoiled(self) -> bool:
        """A message of each exchange has met what it must meet."""
        found = {name: {code for (code,) in await self.scene.queue.sql(SPOILED, self.made[name].exchange)} for name in CODES}
        assert all(codes <= {CODES[name], "confirm_lost"} for name, codes in found.items()), found
        return all(CODES[name] in codes for name, codes in found.items())


async def says_delayed(scene: Scene) -> bool:
    """The status counts messages that wait for another attempt; they may all be due, or tried, at one moment."""
    return bool(re.search(r"[1-9]\d* delayed", await scene.status()))


@asynccontextmanager
async def removals(scene: Scene) -> AsyncIterator[Removals]:
    """One exchange for each part that goes; the producer sends to all of them, and to the inbox, from which nothing is taken."""
    made = {name: await scene.topology.declare(f"{scene.inbox.exchange}.{name}", f"{scene.inbox.queue}.{name}") for name in CODES}
    scene.others += [each.queue for each in made.values()]
    scene.producer.shape = spread([scene.inbox.exchange, *(each.exchange for each in made.values())])
    async with await aio_pika.connect(scene.broker.url) as connection:
        yield Removals(scene, await connection.channel(), made)


@pytest.mark.fault(11, repeats=20)
@pytest.mark.ids("C9", "C15")
async def test_what_goes_in_flight_spoils_its_own_messages_alone_until_it_is_back(scene: Scene) -> None:
    """Exchange, queue and binding: each message meets what is gone, the others are sent at once; all arrive, in order, none twice."""
    await scene.configure(**PATIENT)
    async with removals(scene) as parts, Proxy.before(scene.broker.url) as proxy:
        relay = await scene.start(broker=proxy.url(scene.broker.url), **SMALL_SEEN)
        await scene.producer.insert(200)
        await scene.queue.settled()
        proxy.hold_requests()
        await scene.producer.insert(200)
        await until(lambda: scene.holds(relay, 100))
        await parts.remove()
        proxy.heal()
        await scene.producer.insert(100)
        await until(parts.spoiled)
        await until(lambda: is_through(scene))
        assert "exchange_quarantined" in {line["event"] for line in relay.lines}
        assert await metric(relay, "relay_messages_total", result="retry") > 0
        await until(lambda: says_delayed(scene))
        await parts.restore()
        report = await scene.check(relay)
    assert 0 == report.duplicates
    assert 1 == await scene.queue.value(UNTOUCHED, scene.inbox.exchange)
    assert 1 == len(relay.of("broker_up"))


async def is_through(scene: Scene) -> bool:
    """Nothing waits for the inbox any more."""
    return not await scene.queue.value("SELECT count(*) FROM queue_message WHERE exchange = %s", scene.inbox.exchange)


@pytest.mark.fault(11, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C9", "C15")
@pytest.mark.timeout(300)  # eight runs of rabbitmqctl, seconds each where the machine is busy
async def test_a_user_that_loses_connections_permission_and_account_goes_on_when_they_are_back(scene: Scene, unique: str) -> None:
    """The broker closes the connections, the user may not write, or is gone: the relay names each, waits, and no message becomes dead."""

    async def ctl(*words: str) -> None:
        await asyncio.to_thread(scene.broker.ctl, *words)

    may_write, may_nothing = ("set_permissions", unique, "", ".*", ""), ("set_permissions", unique, "", "", "")
    await scene.configure(**PATIENT)
    await ctl("add_user", unique, "secret")
    await ctl(*may_write)
    url = scene.broker.url.replace("guest:guest", f"{unique}:secret")
    async with Proxy.before(url) as proxy:
        relay = await scene.start(broker=proxy.url(url), **SMALL_SEEN)

        async def fault() -> None:
            scene.producer.fault(WINDOW)
            await ctl("close_all_user_connections", unique, "maintenance")
            assert "320 CONNECTION_FORCED" in (await relay.logged("broker_down"))["error"]
            await relay.logged("broker_up", 2)

            await ctl(*may_nothing)
            scene.producer.fault(WINDOW)
            proxy.reset()  # an open channel may still do what it was once allowed
            await until(lambda: met(scene, "access_refused"))
            await ctl(*may_write)
            await until(lambda: shows_flow(relay))

            scene.producer.fault(WINDOW)
            await ctl("delete_user", unique)
            await until(lambda: any(f"refused user '{unique}'" in line["error"] for line in relay.of("broker_down")))
            await until(lambda: is_down(relay))
            await ctl("add_user", unique, "secret")
            await ctl(*may_write)
            await until(lambda: shows_flow(relay))

        await play(scene, fault, relay)
        await scene.check(relay)


async def met(scene: Scene, code: str) -> bool:
    """A message waits because of this."""
    return (code,) in await scene.queue.sql(SPOILED, scene.inbox.exchange)


async def is_down(relay: RelayProcess) -> bool:
    """By its metric."""
    return not await metric(relay, "relay_broker_up")


async def declare(url: str, made: Declared) -> None:
    """Exchange, queue and binding, in any vhost."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(made.exchange, "direct", durable=True)
        queue = await channel.declare_queue(made.queue, durable=True)
        await queue.bind(exchange, made.routing_key)


@pytest.mark.fault(11, repeats=20)
@pytest.mark.ids("C9", "C15")
async def test_a_deleted_vhost_is_waited_for(scene: Scene, unique: str) -> None:
    """With all that was in it; what was in flight goes out when vhost and queue are back, and no attempt is counted."""
    url = scene.broker.add_vhost(unique)
    await declare(url, scene.inbox)
    async with Proxy.before(url) as proxy:
        relay = await scene.start(broker=proxy.url(url), **SMALL_SEEN)
        await scene.producer.insert(200)
        await scene.queue.settled()
        async with Topology(url, unique) as topology:
            assert 200 == await scene.producer.collect(topology, scene.inbox.queue)
        proxy.hold_requests()
        await scene.producer.insert(200)
        await until(lambda: scene.holds(relay, 100))
        await asyncio.to_thread(scene.broker.delete_vhost, unique)
        await until(lambda: is_down(relay))
        proxy.heal()
        await until(lambda: any("refused the vhost" in line["error"] for line in relay.of("broker_down")))
        await asyncio.to_thread(scene.broker.add_vhost, unique)
        await declare(url, scene.inbox)
        async with Topology(url, unique) as scene.topology:
            report = await scene.check(relay)
    await asyncio.to_thread(scene.broker.delete_vhost, unique)
    assert 0 == report.duplicates
