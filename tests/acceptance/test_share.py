"""One exchange's flood does not keep another's messages waiting: counted in claims, on real servers."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays

FLOOD = 100_000
OTHERS = 200
RATE = 200
LONG = 12
"""Claims of the flood, 200 in all, that may come before a message of the others: those of a window that was full of it, while the way
past all of the flood is walked. Measured: 3, for the first ones."""
SHORT = 3
"""Claims before the usual one: one that is under way, and the flood's turn. Measured: 1."""
BETWEEN = """
    SELECT (SELECT count(DISTINCT flood.claimed_at) FROM queue_message_archive AS flood
            WHERE flood.exchange = %s AND flood.claimed_at BETWEEN other.created_at AND other.claimed_at)
    FROM queue_message_archive AS other WHERE other.exchange = %s"""


@pytest.mark.ids("A10")
async def test_messages_overtake_another_exchanges_backlog(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str
) -> None:
    """100,000 wait for one exchange; each of 200 for another goes out after a few of their claims."""
    flood = await topology.declare(f"{unique}.flood", f"{unique}.flooded", arguments={"x-max-length": 100})
    other = await topology.declare(f"{unique}.other", f"{unique}.others")
    pad = f"SELECT %s, %s, jsonb_build_object('n', n) FROM generate_series(1, {FLOOD}) AS n"
    await queue.sql(f"INSERT INTO queue_message (exchange, routing_key, content) {pad}", flood.exchange, flood.routing_key)
    relay = await relays.start(database=queue.url, broker=amqp_url)
    for _ in range(OTHERS):
        await queue.insert(exchange=other.exchange, routing_key=other.routing_key)
        await asyncio.sleep(1 / RATE)  # an application that inserts so often: all at once would be one claim

    async def are_settled() -> bool:
        return bool(await queue.value("SELECT count(*) = %s FROM queue_message_archive WHERE exchange = %s", OTHERS, other.exchange))

    await until(are_settled, 120)
    assert 0 < await queue.value("SELECT count(*) FROM queue_message")

    claims = sorted(count for (count,) in await queue.sql(BETWEEN, flood.exchange, other.exchange))
    print(f"claims of the flood before a message: median {median(claims)}, at most {claims[-1]}")  # noqa: T201 - the figure
    assert 0 == await relay.stop()
    assert await topology.has(other.queue, OTHERS)
    assert median(claims) <= SHORT
    assert claims[-1] <= LONG
