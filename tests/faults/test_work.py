"""Workers and their database die while handlers work: each message is handled, and in a transaction once."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.scrape import HTTP, counted

MESSAGES = 2000
KILLS, MANY_KILLS = 4, 40
"""In a run of the short form and of the long one."""
HANDLERS = """
import asyncio
from pathlib import Path

async def book(message, connection):
    await connection.execute("INSERT INTO booking VALUES (%s)", (message.content["n"],))
    await asyncio.sleep(0.005)

async def note(message):
    with Path("noted.txt").open("a") as file:
        file.write(f"{message.content['n']}\\n")
    await asyncio.sleep(0.005)
"""
COUNT = "SELECT count(*) FROM queue_message_archive WHERE result = 'success'"
Start = Callable[..., Awaitable[RelayProcess]]


@pytest.fixture
async def work(relays: Relays, queue: Queue, tmp_path: Path) -> Start:
    """Starts workers on an inbox with messages in it; the table `booking` takes each number as often as it comes."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    await queue.sql("SELECT queue_message_config_set('direction', 'inbox'), queue_message_config_set('max_attempts', '1000')")
    await queue.sql("CREATE TABLE booking (number int)")
    await queue.sql(
        "INSERT INTO queue_message (exchange, content) SELECT 'e', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n", MESSAGES
    )

    async def start(name: str, *words: str) -> RelayProcess:
        command = ("work", *(words or ("handlers:book", "--transaction")))
        return await relays.start(name, database=queue.url, broker="amqp://nobody:x@127.0.0.1:1/", command=command, settings=HTTP)

    return start


async def done(queue: Queue, count: int = MESSAGES) -> bool:
    """So many are archived as successes."""
    return bool(await queue.value(COUNT) >= count)


@pytest.mark.fault(33, repeats=5)
@pytest.mark.timeout(900)
@pytest.mark.ids("B9", "A12", "A17")
async def test_kill_9_of_workers_in_transactions_handles_each_message_once(
    work: Start, queue: Queue, relays: Relays, chance: random.Random, *, long_form: bool
) -> None:
    """What a handler wrote and its settle are there together or not at all, whenever the worker dies."""
    running = [await work(f"worker-{number}") for number in range(2)]
    for number in range(MANY_KILLS if long_form else KILLS):
        await asyncio.sleep(chance.uniform(0.1, 0.6))  # the random moment
        await running[number].kill()
        running.append(await work(f"worker-{number + 2}"))
    silent = await relays.command("status", database=queue.url)
    assert re.search(r"worker-0 .*silent ", silent)
    await until(lambda: done(queue), 120)
    assert any(worker.of("locks_swept") for worker in running)
    assert [(MESSAGES, MESSAGES)] == await queue.sql("SELECT count(*), count(DISTINCT number) FROM booking")


@pytest.mark.fault(33, repeats=20)
@pytest.mark.ids("A17")
async def test_a_killed_worker_without_transactions_repeats_at_most_what_it_held(work: Start, queue: Queue, tmp_path: Path) -> None:
    """Every message is handled; twice only what was in its hands."""
    victim = await work("victim", "handlers:note")
    await until(lambda: done(queue, 100))
    await victim.kill()
    held = await queue.value("SELECT count(*) FROM queue_message WHERE lock_token IS NOT NULL")
    await work("successor", "handlers:note")
    await until(lambda: done(queue), 120)
    noted = [int(line) for line in (tmp_path / "noted.txt").read_text().split()]
    assert set(range(1, MESSAGES + 1)) == set(noted)
    assert len(noted) - MESSAGES <= held


@pytest.mark.fault(33, repeats=20)
@pytest.mark.ids("A17", "C9")
async def test_a_database_that_dies_under_workers_handles_each_message_once(
    work: Start, queue: Queue, own_postgres: devservers.Postgres
) -> None:
    """Handlers whose transaction was lost begin again; one whose COMMIT got through is not repeated."""
    worker = await work("worker")
    await until(lambda: done(queue, 100))
    await asyncio.to_thread(own_postgres.crash)
    await worker.logged("maintenance_failed")
    await counted(worker, 1, "relay_failures_total")
    await asyncio.to_thread(own_postgres.start)
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as connection:
        queue.connection = connection
        await until(lambda: done(queue), 120)
        assert [(MESSAGES, MESSAGES)] == await queue.sql("SELECT count(*), count(DISTINCT number) FROM booking")


@pytest.mark.fault(33, repeats=20)
@pytest.mark.ids("A11", "B9")
async def test_a_worker_that_slept_past_its_locks_writes_nothing(work: Start, queue: Queue) -> None:
    """Its messages went to another worker meanwhile; its own transactions find no lock, and are rolled back."""
    sleeper = await work("sleeper")
    await until(lambda: done(queue, 100))
    sleeper.send(signal.SIGSTOP)
    await work("other")
    # One that fell asleep between its settle and its COMMIT keeps that row.
    await until(lambda: done(queue, MESSAGES - 10), 120)
    sleeper.send(signal.SIGCONT)
    await sleeper.stop()
    await until(lambda: done(queue), 120)
    assert [(MESSAGES, MESSAGES)] == await queue.sql("SELECT count(*), count(DISTINCT number) FROM booking")
