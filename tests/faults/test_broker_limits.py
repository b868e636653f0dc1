"""A limit of the broker that appears, changes or goes while a relay works: after each change everything leaves soon, and once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relay import devservers
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.faults.play import SMALL_SEEN
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.private import user_of

SOON = 30.0
"""Seconds after a change in which everything leaves, on any machine."""
EXCHANGES = 12
"""New ones after each change: each wants a channel."""
EACH = 10
"""Messages for each of them."""
FEW = 4
"""Connections that may be lost until a lower limit is learned: the broker counts closed channels for a moment."""
LOWERED, RAISED = FEW, 0
JOINED = 2
"""The login that goes through, and one that was under way when the limit was raised."""


class Play:
    """A relay under limits, and what has come through it."""

    def __init__(
        self, relay: RelayProcess, proxy: Proxy, url: str, queue: Queue, broker: devservers.RabbitMQ, topology: Topology, inbox: Declared
    ) -> None:
        self.relay = relay
        self._proxy = proxy
        self._user_url = url
        self.queue = queue
        self._broker = broker
        self._topology = topology
        self._inbox = inbox
        self._exchanges = 0
        self._noted = 1
        """Connections that the test knows of."""

    async def ctl(self, *words: str | dict[str, int]) -> None:
        """Run rabbitmqctl; a table is written as JSON."""
        await asyncio.to_thread(self._broker.ctl, *(word if isinstance(word, str) else json.dumps(word) for word in words))
        self._noted = self.connections

    async def limit(self, **limits: int) -> None:
        """Set limits of the relay's user, -1 for none."""
        await self.ctl("set_user_limits", self.relay.name, {name.replace("_", "-"): most for name, most in limits.items()})

    async def cut(self) -> None:
        """Close the relay's connection, and wait until it tries to have another one."""
        before = self.connections
        await self.ctl("close_all_user_connections", self.relay.name, "test")
        await until(lambda: self.connections > before, SOON)

    async def cut_and_joined(self) -> None:
        """Close the relay's connection, and wait until it has another one, as the broker says: the relay's log leaves out what repeats."""
        await self.cut()
        await until(self._is_joined, SOON)
        self._noted = self.connections

    async def _is_joined(self) -> bool:
        said = await asyncio.to_thread(self._broker.ctl, "list_connections", "user", "state")
        return [self.relay.name, "running"] in [line.split() for line in said.splitlines()]

    @property
    def url(self) -> str:
        """Where its relays connect."""
        return self._proxy.url(self._user_url)

    @property
    def connections(self) -> int:
        """How often the relay has connected or tried to; its log leaves out some."""
        return len(self._proxy.accepted)

    async def tries(self, times: int) -> None:
        """Wait until the relay has connected, or tried to, so often more."""
        before = self.connections
        await until(lambda: self.connections >= before + times, SOON)
        self._noted = self.connections

    async def insert(self) -> list[str]:
        """Insert messages for exchanges that the relay has not met; return their ids."""
        sent = []
        for _ in range(EXCHANGES):
            self._exchanges += 1
            name = f"{self._inbox.exchange}.{self._exchanges}"
            made = await self._topology.declare(name, self._inbox.queue)
            sent += await self.queue.insert(EACH, exchange=made.exchange, routing_key=made.routing_key)
        return sent

    async def leaves(self, sent: list[str], *, losses: int) -> None:
        """Expect all of these soon, once each, but for what was in flight on connections lost since the last look: at most so many."""
        await self.queue.settled(seconds=SOON)
        lost = self.connections - self._noted
        self._noted = self.connections
        came = Counter(str(message.headers["x-relay-id"]) for message in await self._topology.drain(self._inbox.queue))
        assert {*sent} == {*came}
        assert lost <= losses, self.relay.lines[-FEW:]
        assert max(came.values()) <= 1 + lost, came.most_common(3)

    async def end(self) -> None:
        """Stop the relay, which has lost no message and blamed none."""
        assert 0 == await self.relay.stop()
        [(results, attempts)] = await self.queue.sql("SELECT array_agg(DISTINCT result), max(attempts) FROM queue_message_archive")
        assert (["success"], 1) == (results, attempts)


@pytest.fixture
async def play(
    relays: Relays, queue: Queue, own_broker: devservers.RabbitMQ, own_topology: Topology, inbox: Declared, unique: str
) -> AsyncIterator[Play]:
    """A relay of a user of its own, whose messages go."""
    with user_of(own_broker, unique, may_write=".*") as url:
        async with Proxy.before(url) as proxy:
            relay = await relays.start(unique, database=queue.url, broker=proxy.url(url), settings=SMALL_SEEN)
            played = Play(relay, proxy, url, queue, own_broker, own_topology, inbox)
            await played.leaves(await played.insert(), losses=0)
            yield played
            await relay.kill()


@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_channels_that_a_user_may_have_change_under_way(play: Play) -> None:
    """Set, lowered to one, raised, removed, set again: a lower limit costs a connection where it is met, a higher one costs none."""
    for most, losses in ((6, LOWERED), (1, LOWERED), (20, RAISED), (-1, RAISED), (4, RAISED)):
        await play.limit(max_channels=most)
        await play.leaves(await play.insert(), losses=losses)
    await play.end()


@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_two_relays_of_one_user_share_its_channels(play: Play, relays: Relays) -> None:
    """Neither knows how many the other has: both learn, and what that costs in connections has an end."""
    other = await relays.start(f"{play.relay.name}-2", database=play.queue.url, broker=play.url, settings=SMALL_SEEN)
    await play.limit(max_channels=6)
    await play.leaves(await play.insert(), losses=2 * LOWERED)
    for _ in range(5):
        await play.leaves(await play.insert(), losses=1)
    assert 0 == await other.stop()
    await play.end()


@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_no_channel_at_all_is_waited_for(play: Play) -> None:
    """What cannot be sent waits and loses no attempt; it leaves once as soon as there is a channel."""
    await play.limit(max_channels=0)
    sent = await play.insert()
    await play.tries(3)
    assert len(sent) == await play.queue.waiting()
    await play.limit(max_channels=1)
    await play.leaves(sent, losses=LOWERED)
    await play.end()


@pytest.mark.parametrize("whose", ["user", pytest.param("vhost", marks=pytest.mark.long_only)])
@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_connections_that_there_may_be_change_under_way(play: Play, whose: str) -> None:
    """A limit below the current number ends no connection; a relay that is cut off waits, and continues within the longest pause."""

    async def limit(most: int) -> None:
        words = (f"set_{whose}_limits", *((play.relay.name,) if whose == "user" else ("-p", "/")))
        await play.ctl(*words, {"max-connections": most})

    try:
        await limit(0)
        await play.leaves(await play.insert(), losses=0)
        for most in (10, -1):
            await limit(0)
            await play.cut()
            sent = await play.insert()
            await play.tries(2)
            assert len(sent) == await play.queue.waiting()
            await limit(most)
            await play.leaves(sent, losses=JOINED)
            await play.leaves(await play.insert(), losses=0)
    finally:
        await limit(-1)
    await play.end()


@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_one_connection_is_all_that_a_relay_needs(play: Play) -> None:
    """Where its user may have one, it has it back as soon as it was cut off."""
    await play.limit(max_connections=1)
    await play.cut_and_joined()
    await play.leaves(await play.insert(), losses=0)
    await play.end()


@pytest.mark.ids("C9")
@pytest.mark.fault(28, repeats=1)
async def test_channels_that_a_node_agrees_to_change_between_two_connections(play: Play) -> None:
    """Each connection keeps to what it was granted, be it one channel."""
    try:
        for most in (3, 1, 2047, 2):
            await play.ctl("eval", f"application:set_env(rabbit, channel_max, {most}).")
            await play.cut_and_joined()
            await play.leaves(await play.insert(), losses=0)
    finally:
        await play.ctl("eval", "application:set_env(rabbit, channel_max, 2047).")
    await play.end()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.fault(12, repeats=1)
async def test_a_policy_bounds_a_queue_under_way(play: Play, own_topology: Topology, unique: str, kind: str) -> None:
    """Set, lowered, raised and removed: what a full queue refuses waits, and leaves once as soon as there is room."""
    await configure(play.queue, backoff_base=0.1, backoff_max=0.5, max_attempts=1000)
    made = await own_topology.declare(f"{unique}.bounded", f"{unique}.bounded", arguments={"x-queue-type": kind})

    async def policy(most: int | None) -> None:
        bound = {"max-length": most, "overflow": "reject-publish"}
        words: tuple[Any, ...] = ("clear_policy", unique) if most is None else ("set_policy", unique, f"^{unique}.bounded$", bound)
        await play.ctl(*words)

    sent: list[str] = []
    came: Counter[str] = Counter()

    async def all_leave() -> bool:
        # A quorum queue looks at what is in it when something is taken, not when its policy changes.
        came.update(str(message.headers["x-relay-id"]) for message in await own_topology.drain(made.queue))
        return not await play.queue.waiting()

    for most in (5, 3, 30, None):
        await policy(most)
        sent += await play.queue.insert(20, exchange=made.exchange, routing_key=made.routing_key)
        if most == 5:
            # So many go at once that a quorum queue may take all of them before it knows that it is full.
            await until(lambda: own_topology.has(made.queue, 5), SOON)
        elif most == 3:
            await until(lambda: play.queue.value("SELECT count(*) > 0 FROM queue_message WHERE last_error LIKE 'nacked:%'"), SOON)
        else:
            await until(all_leave, SOON)
    await all_leave()
    assert dict.fromkeys(sent, 1) == came
    assert 1 == play.connections
    assert 0 == await play.relay.stop()
    assert {"success"} == {*(await play.queue.results()).values()}


async def configure(queue: Queue, **settings: object) -> None:
    """Set the database's policy."""
    for name, value in settings.items():
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, str(value))
