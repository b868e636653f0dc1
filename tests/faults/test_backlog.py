"""A long queue: a relay starts on it as fast as on a short one, and needs no more memory. Its last claims cost what its first ones did."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from tests.support.database.costs import cost, count_statements
from tests.support.database.plans import PAD
from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess, peak_memory
from tests.support.relays.scrape import HTTP, metric
from tests.support.servers.shared import Say

SHORT, LONG = 100_000, 10_000_000
CHUNK = 50_000
"""Messages of one transaction that inserts."""
SAMPLE = 30_000
"""Messages at either end over which claims are counted: some sixty of them."""
EMPTY = 5000
"""Messages before the last one after which nothing is counted: claims find less there."""
START, STARTED_BY_ALL_MEANS = 5.0, 60.0
"""Seconds from the process's start to its first message at the broker: as promised for a quiet machine, and on one under load."""
MEMORY = 120 << 20
LONGEST = 2 * 3600
"""Seconds that the long form may take; no limit for a rate."""
GROWTH = 1.5
"""How many times as many pages a message as the first claims the last ones may look at."""
INSERT = f"INSERT INTO queue_message (exchange, routing_key, content) SELECT %s, %s, {PAD} FROM generate_series(1, %s)"


@pytest.mark.fault(21, repeats=1)  # an hour for ten million
@pytest.mark.timeout(LONGEST)
@pytest.mark.slow
@pytest.mark.ids("C8", "D2")
async def test_a_long_queue_is_begun_and_ended_alike(scene: Scene, say: Say, *, long_form: bool) -> None:
    """Started soon, in little memory, with the same pages a claimed message at the end as at the beginning; each goes out once."""
    await count_statements(scene.queue)
    count = int(os.environ.get("FAULT_BACKLOG", LONG if long_form else SHORT))
    inbox = await scene.topology.declare(queue=f"{scene.inbox.queue}.end", arguments={"x-max-length": 1} if long_form else None)
    async with await psycopg.AsyncConnection.connect(scene.queue.url, autocommit=True) as writer:
        for _ in range(count // CHUNK):
            await writer.execute(INSERT.encode(), [inbox.exchange, inbox.routing_key, CHUNK])
    begun, nothing = time.monotonic(), await cost(scene.queue)
    relay = await scene.start(**HTTP)
    await until(lambda: scene.topology.has(inbox.queue))
    started = time.monotonic() - begun
    assert "messages wait in schema public" in await scene.status()
    await until(lambda: is_told(relay))
    await sent(scene, relay, SAMPLE)
    first = (await cost(scene.queue)).each(nothing)
    await sent(scene, relay, count - 2 * SAMPLE)
    async with keeping_what_is_settled(scene):
        await sent(scene, relay, count - SAMPLE)
        before_last = await cost(scene.queue)
        await sent(scene, relay, count - EMPTY)
        last = (await cost(scene.queue)).each(before_last)
    await scene.queue.settled()
    drained, memory = time.monotonic() - begun, peak_memory(relay.pid)

    say(f"{count:,}: first after {started:.1f} s, {count / drained:,.0f}/s, {memory >> 20} MB, {first:.1f} and {last:.1f} pages a message")
    assert started <= (START if long_form else STARTED_BY_ALL_MEANS)
    assert memory <= MEMORY
    assert last <= GROWTH * first
    assert 0 == await relay.stop()
    assert [("success", count)] == await scene.queue.sql("SELECT result, count(*) FROM queue_message_archive GROUP BY result")
    assert long_form or count == await scene.topology.waiting(inbox.queue)


@asynccontextmanager
async def keeping_what_is_settled(scene: Scene) -> AsyncIterator[None]:
    """A transaction that still sees all of it, so that a claim which walked over it would have to step on every row."""
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT 1")
        yield


async def sent(scene: Scene, relay: RelayProcess, count: int) -> None:
    """Wait until the relay has settled so many messages."""

    async def are_out() -> bool:
        assert await metric(relay, "relay_database_up")
        return await metric(relay, "relay_messages_total", result="success") >= count

    await until(are_out, LONGEST)


async def is_told(relay: RelayProcess) -> bool:
    """The relay has reported its queue to scrapers."""
    return await metric(relay, "relay_queue_waiting") > 0
