"""Transactions of applications and operators: held open, committed late, undone in part, ended in two steps."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay import devservers
from tests.faults.transaction_chaos import DisorderlyProducer
from tests.support.database.costs import cost, count_statements
from tests.support.database.queue import until
from tests.support.faults.play import WINDOW, producing
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP, metric

CHUNK = 500
BASELINE, HELD = 6, 14
"""Claims of 500 before the transaction begins, and while it is open, in the short form; the last of them count."""
HELD_SECONDS = float(os.environ.get("FAULT_HELD_SECONDS", "0"))
"""For how long it is open at least: FAULT_HELD_SECONDS=1800 for the form of half an hour, which is played on purpose only."""
HELD_EACH = 2.5
"""Seconds between two claims then: 360,000 messages in half an hour, as an application that is busy all day."""
LATE = 3.0
"""Seconds between the first insert and the commit of a late writer, at most."""
WRITERS, TURNS = 50, 3


async def move(scene: Scene, chunks: int) -> None:
    """Insert, and wait until all is settled, a number of times."""
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as connection:
        for _ in range(chunks):
            await scene.producer.transact(connection, CHUNK, ordered=False, roll_back=False)
            await scene.queue.settled()


async def hold(connection: psycopg.AsyncConnection[Any], what: str) -> None:
    """Begin a transaction that reads, or one that writes."""
    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await connection.execute("SELECT count(*) FROM queue_message")
    if what == "write":
        await connection.execute("CREATE TEMPORARY TABLE mine ()")


# Three times in the long form, as each holds for long where FAULT_HELD_SECONDS says so.
@pytest.mark.fault(18, repeats=3)
@pytest.mark.parametrize("what", ["read", pytest.param("write", marks=pytest.mark.long_only)])
@pytest.mark.timeout(HELD_SECONDS + 300)
async def test_a_transaction_that_is_held_open_makes_no_claim_dearer(scene: Scene, what: str) -> None:
    """Nothing that was settled meanwhile can be vacuumed away, and no claim walks it; a metric, and the status, tell of the transaction."""
    await count_statements(scene.queue)
    relay = await scene.start()
    await move(scene, 2)
    before = await cost(scene.queue)
    await move(scene, BASELINE)
    baseline = (await cost(scene.queue)).each(before)
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as holder:
        await hold(holder, what)
        began = time.monotonic()
        await move(scene, HELD - BASELINE)
        while time.monotonic() - began < HELD_SECONDS:
            await asyncio.gather(move(scene, 1), asyncio.sleep(HELD_EACH))
        before = await cost(scene.queue)
        await move(scene, BASELINE)
        assert (await cost(scene.queue)).each(before) < 1.5 * baseline
        # Not before: its first claim walks once over all that is dead. Its first look at the queue comes at once.
        watcher = await scene.start("watcher", **HTTP)
        await until(lambda: shows_age(watcher))
        await until(lambda: status_tells(scene))

    report = await scene.check(relay, watcher)
    assert 0 == report.duplicates
    assert "the oldest open transaction" not in await scene.status()


async def status_tells(scene: Scene) -> bool:
    """`relay status` names the transaction, which it does when that is five seconds old."""
    return "the oldest open transaction began" in await scene.status()


async def shows_age(relay: RelayProcess) -> bool:
    """The relay shows that a transaction is open."""
    return await metric(relay, "relay_queue_oldest_transaction_seconds") > 0


@pytest.fixture
async def disorder(scene: Scene, tmp_path: Path) -> AsyncIterator[DisorderlyProducer]:
    """The scene's producer, with transactions that end in every way."""
    (tmp_path / "disorder").mkdir()
    with DisorderlyProducer(scene.queue.url, scene.inbox.exchange, tmp_path / "disorder", scene.chance) as producer:
        scene.producer = producer
        yield producer


async def connections(stack: AsyncExitStack, url: str, count: int) -> list[psycopg.AsyncConnection[Any]]:
    """So many sessions of applications."""
    return [await stack.enter_async_context(await psycopg.AsyncConnection.connect(url)) for _ in range(count)]


@pytest.mark.fault(19, repeats=20)
@pytest.mark.ids("C1", "C17")
async def test_who_commits_late_is_not_passed_over(scene: Scene, disorder: DisorderlyProducer) -> None:
    """Fifty writers commit up to three seconds after they wrote, while others are quick: all goes out when its turn has come, unswept."""
    relay = await scene.start(**HTTP)
    async with producing(scene), AsyncExitStack() as stack:

        async def write(connection: psycopg.AsyncConnection[Any]) -> None:
            for _ in range(TURNS):
                await disorder.commit_late(connection, LATE)

        await asyncio.gather(*map(write, await connections(stack, scene.queue.url, WRITERS)))
    await scene.queue.settled()
    assert 0 == await metric(relay, "relay_stranded_total")
    report = await scene.check(relay)
    assert 0 == report.duplicates
    assert [] == relay.of("stranded_found")


@pytest.mark.fault(20, repeats=20)
@pytest.mark.ids("C1", "C2")
async def test_what_was_undone_never_goes_out(scene: Scene, disorder: DisorderlyProducer, own_postgres: devservers.Postgres) -> None:
    """Savepoints, caught errors, subtransactions beyond a snapshot's room, two steps with a crash in between: committed or never there."""
    relay = await scene.start(**HTTP)
    async with AsyncExitStack() as stack:

        async def write(connection: psycopg.AsyncConnection[Any]) -> None:
            for _ in range(6):
                await disorder.entangle(connection)

        sessions = await connections(stack, scene.queue.url, 8)
        await asyncio.gather(*map(write, sessions))
        kept, dropped = [await disorder.prepare(session, 20) for session in sessions[:2]]
    await scene.queue.settled()
    assert "2 transactions write" in (said := await scene.status())
    assert "2 prepared" in said

    disorder.fault(WINDOW)
    await asyncio.to_thread(own_postgres.crash)
    await asyncio.to_thread(own_postgres.start)
    await relay.logged("listen_up", 2)
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as connection:
        await disorder.finish(connection, kept, commit=True)
        await disorder.finish(connection, dropped, commit=False)
    await scene.check_with_new_eyes(relay)
