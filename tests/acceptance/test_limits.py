"""An exchange that an operator limits: as its consumer sees it, alongside other exchanges, and with several relays."""

from __future__ import annotations

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays

RATE = 50
SLACK = 1.0
"""Seconds that a claim may take on a busy machine from its decision until the database carries it out."""
CLAIMED = "SELECT extract(epoch FROM claimed_at)::float8 FROM queue_message_archive WHERE exchange = %s ORDER BY claimed_at"


async def tells_of(queue: Queue, what: str, exchange: str, relays: int = 1) -> bool:
    """So many relays report the exchange as limited, held, or behind its limit."""
    return bool(relays == await queue.value("SELECT count(*) FROM queue_message_relay WHERE state -> %s ? %s", what, exchange))


async def archived(queue: Queue, exchange: str) -> int:
    """Messages of it that are through."""
    return int(await queue.value("SELECT count(*) FROM queue_message_archive WHERE exchange = %s", exchange))


async def within(queue: Queue, exchange: str, rate: float) -> None:
    """From every claim to every later one: never more than a second's worth beyond the rate."""
    times = [at for (at,) in await queue.sql(CLAIMED, exchange)]
    for first, begun in enumerate(times):
        over = [(at - begun, n) for n, at in enumerate(times[first:], 1) if n > max(rate, 1) + rate * (at - begun + SLACK)]
        assert not over, f"of {len(times)} since {first}: {over[0]}"


@pytest.mark.timeout(300)
@pytest.mark.ids("D10")
async def test_a_limited_exchange_goes_at_its_rate_and_another_at_full_speed(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """3,000 of it wait before 1,000 of another, which are through first; all come once and in order. Lifted, the rest comes at once."""
    slow = await topology.declare(f"{unique}.slow", f"{unique}.slowed")
    other = await topology.declare(f"{unique}.other", f"{unique}.others")
    assert "is limited to 50 messages a second" in await relays.command("limit", slow.exchange, str(RATE), database=queue.url)
    ids = await queue.insert(3000, exchange=slow.exchange, routing_key=slow.routing_key)
    await queue.insert(1000, exchange=other.exchange, routing_key=other.routing_key)
    relay = await relays.start(database=queue.url, broker=amqp_url)

    async def others_are_through() -> bool:
        return await archived(queue, other.exchange) == 1000

    await until(others_are_through, 60)
    assert await archived(queue, slow.exchange) < 3000
    await until(lambda: tells_of(queue, "behind", slow.exchange))
    assert "and messages wait for it; `relay unlimit" in await relays.command("status", database=queue.url)
    await until(lambda: _at_least(queue, slow.exchange, 400), 90)
    await within(queue, slow.exchange, RATE)
    await relays.command("unlimit", slow.exchange, database=queue.url)
    assert ids == [message.message_id for message in await topology.drain(slow.queue, 3000, seconds=60)]
    await queue.settled()
    assert await topology.has(other.queue, 1000)
    assert [1, 1] == [len(relay.of(name)) for name in ("exchange_limited", "exchange_unlimited")]


async def _at_least(queue: Queue, exchange: str, messages: int) -> bool:
    return await archived(queue, exchange) >= messages


@pytest.mark.ids("D10")
async def test_keys_of_a_low_limit_go_while_the_relay_rests(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """At one message in two seconds no new message is announced, and no scan of the lanes finds the keys that wait."""
    slow = await topology.declare(f"{unique}.slow", f"{unique}.slowed")
    await relays.command("limit", slow.exchange, "0.5", database=queue.url)
    await relays.start(database=queue.url, broker=amqp_url)
    await until(lambda: tells_of(queue, "limited", slow.exchange))
    for key in "abcdefgh":
        await queue.insert(1, exchange=slow.exchange, routing_key=slow.routing_key, ordering_key=key)

    await until(lambda: _at_least(queue, slow.exchange, 8), 90)
    await within(queue, slow.exchange, 0.5)


@pytest.mark.ids("D10")
async def test_two_relays_share_a_limit_and_keep_order(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """Delayed messages, keys and plain ones: all of one exchange have one limit, and each key keeps its order."""
    slow = await topology.declare(f"{unique}.slow", f"{unique}.slowed")
    await relays.command("limit", slow.exchange, str(RATE), "--reason", "old consumer", database=queue.url)
    for name in ("one", "two"):
        await relays.start(name, database=queue.url, broker=amqp_url)
    await until(lambda: tells_of(queue, "limited", slow.exchange, 2))
    await until(lambda: _both_own_lanes(queue))
    to = {"exchange": slow.exchange, "routing_key": slow.routing_key}
    keyed = {key: await queue.insert(10, **to, ordering_key=key) for key in "abcdefgh"}
    await queue.insert(80, **to)
    await queue.sql(
        "INSERT INTO queue_message (exchange, routing_key, available_at) SELECT %s, %s, now() FROM generate_series(1, 80)",
        slow.exchange, slow.routing_key,
    )  # fmt: skip

    came = [message.message_id for message in await topology.drain(slow.queue, 240, seconds=90)]

    await queue.settled()
    assert 240 == len(set(came))
    for ids in keyed.values():
        assert ids == [id_ for id_ in came if id_ in ids]
    await within(queue, slow.exchange, RATE)


async def _both_own_lanes(queue: Queue) -> bool:
    return bool(2 == await queue.value("SELECT count(DISTINCT owner) FROM queue_message_lane WHERE lease_expires_at > now()"))


@pytest.mark.ids("D10")
async def test_a_pause_wins_over_a_limit_and_another_figure_takes_hold(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """One message in ten seconds, then none at all, then a thousand a second, at which the rest is out."""
    slow = await topology.declare(f"{unique}.slow", f"{unique}.slowed")
    await relays.command("limit", slow.exchange, "0.1", database=queue.url)
    relay = await relays.start(database=queue.url, broker=amqp_url)
    await until(lambda: tells_of(queue, "limited", slow.exchange))
    await relays.command("pause", slow.exchange, database=queue.url)
    await until(lambda: tells_of(queue, "held", slow.exchange))
    await queue.insert(500, exchange=slow.exchange, routing_key=slow.routing_key)
    assert "it was 0.1 messages a second" in await relays.command("limit", slow.exchange, "1000", database=queue.url)
    await relay.logged("exchange_limited", 2)
    heartbeat = "SELECT heartbeat_at::text FROM queue_message_relay"
    last = await queue.value(heartbeat)

    async def reported_again() -> bool:
        return bool(last != await queue.value(heartbeat))

    await until(reported_again)
    assert 0 == await archived(queue, slow.exchange)
    await relays.command("resume", slow.exchange, database=queue.url)
    await queue.settled()
    assert await topology.has(slow.queue, 500)
