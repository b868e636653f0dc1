"""Relays carry schedules out: each tick once however many there are, and idle ones ask for nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.network.statement_proxy import Tap
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Say

ADD = "SELECT queue_message_schedule_add('n', 'EVERY 1 second', %s, %s, missed => 'all')"
SENT = "SELECT options -> 'headers' ->> 'x-relay-tick', created_at FROM queue_message_archive WHERE result = 'success' ORDER BY 1, 2"
TICKS = 6
"""A second apart, before a relay is killed, and again after it."""
RESTED = 3
"""Heartbeats, two seconds apart."""


@pytest.mark.ids("A20", "A36")
async def test_relays_send_each_tick_once_although_one_is_killed(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """Two of them wait for the same moments; what the one that dies had begun, the other does."""
    inbox = await topology.declare()
    first = await relays.start("first", database=queue.url, broker=amqp_url)
    await relays.start("second", database=queue.url, broker=amqp_url)
    await queue.sql(ADD, inbox.exchange, inbox.routing_key)

    async def sent(count: int) -> bool:
        return len(await queue.sql(SENT)) >= count

    await until(lambda: sent(TICKS))
    await first.kill()
    before = len(await queue.sql(SENT))
    await until(lambda: sent(before + TICKS))
    await queue.sql("SELECT queue_message_schedule_remove('n')")
    await queue.settled()

    found = await queue.sql(SENT)
    ticks = [datetime.fromisoformat(text) for text, _ in found]
    assert ticks == [ticks[0] + timedelta(seconds=number) for number in range(len(ticks))]
    late = sorted((created - tick).total_seconds() for tick, (_, created) in zip(ticks, found, strict=True))
    say(f"{len(late)} ticks, inserted {late[0] * 1000:.0f} to {late[-1] * 1000:.0f} ms after their time")


async def test_an_idle_relay_asks_nothing_for_a_schedule_that_is_not_due(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """The next tick comes with the policy that it reads all the same; what is added meanwhile is heard of so too."""
    inbox = await topology.declare()
    await queue.sql("SELECT queue_message_schedule_add('later', '0 0 29 2 *', 'e')")
    async with Tap.before(queue.url) as tap:
        await relays.start(database=tap.url(queue.url), broker=amqp_url)
        await until(lambda: len(tap.of("heartbeat")) > RESTED)
        assert [] == tap.of("run_schedules")

        await queue.sql("SELECT queue_message_schedule_add('n', 'EVERY 1 hour', %s, %s)", inbox.exchange, inbox.routing_key)
        await queue.sql("UPDATE queue_message_schedule SET next_at = date_trunc('second', created_at) WHERE name = 'n'")
        await until(lambda: bool(tap.of("run_schedules")))
        beats = len(tap.of("heartbeat"))
        await until(lambda: len(tap.of("heartbeat")) > beats + RESTED)
        # One more where the policy was read while the first was under way.
        assert len(tap.of("run_schedules")) <= 2
