"""How quick an inbox fills from a queue, and how quick workers with a handler that does nothing empty one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aio_pika
import psycopg

from tests.bench.figures import Figure, figure
from tests.bench.speed import kinds
from tests.bench.speed.counters import cpu
from tests.bench.speed.kinds import QUEUE
from tests.bench.speed.stage import COMMAND, Stage, tidy
from tests.support.relays.processes import RelayProcess, Relays

ROWS = 60_000
PAD = "x" * 250
HANDLERS = "async def one(message): pass\n\n\nasync def many(messages): pass\n\n\nasync def booked(message, connection): pass\n"
RECEIVED = "SELECT count(*) FROM queue_message"
HANDLED = "SELECT count(*) FROM queue_message_archive"
RECEIVED_RATE = """
    SELECT sum(messages) FILTER (WHERE at > began) / extract(epoch FROM max(at) - min(at))::float8 FROM (
        SELECT pg_xact_commit_timestamp(xid::text::xid) AS at, count(*) AS messages,
            min(pg_xact_commit_timestamp(xid::text::xid)) OVER () AS began FROM queue_message GROUP BY xid) AS transactions
"""
"""What came in after the first COMMIT, by the time from it to the last."""
HANDLED_RATE = """
    SELECT count(*) / extract(epoch FROM
        max(pg_xact_commit_timestamp(archived_xid::text::xid)) - pg_xact_commit_timestamp(%s::text::xid))::float8
    FROM queue_message_archive
"""
"""From the COMMIT of the insert to that of the last settle."""
WORKERS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str], int, float | None]] = {
    "lists of 100": (("many",), {"RELAY_WORK_BATCH": "100"}, ROWS, 3000),
    "one by one": (("one",), {}, 20_000, None),
    "in transactions": (("booked", "--transaction"), {}, 5_000, None),
}
"""Handler, settings, messages of a round, and the goal."""


async def measure_receive(stage: Stage, rounds: int) -> list[Figure]:
    """`relay receive` with default settings and a queue of 60,000 messages."""
    rates, used = list[float](), list[float]()
    for number in range(rounds):
        url = inbox(stage)
        await fill(stage, number)
        tidy(url)
        with psycopg.connect(url, autocommit=True) as connection, tempfile.TemporaryDirectory(dir=stage.folder) as folder:
            made = Relays(COMMAND, Path(folder))
            settings = {"RELAY_RECEIVE_QUEUES": QUEUE, "RELAY_INBOX_LIMIT": str(10 * ROWS)}
            receiver = await made.start(database=url, broker=stage.rabbitmq.url, command="receive", settings=settings)
            await counted(connection, RECEIVED, ROWS)
            used.append(cpu(receiver.pid) / ROWS)
            rates.append(value(connection, RECEIVED_RATE))
            await made.close()
        stage.say(f"inbox: {rates[-1]:,.0f} messages/s, {used[-1]:.0f} µs of the receiver's CPU each")
    return [
        figure("inbox: messages from one queue", "messages/s", rates, least=5000),
        figure("inbox: receiver's CPU of a message, its start included", "µs", used),
    ]


async def measure_work(stage: Stage, rounds: int) -> list[Figure]:
    """`relay work` with default settings and a handler that does nothing."""
    figures = list[Figure]()
    for name, (words, settings, rows, least) in WORKERS.items():
        url = inbox(stage)
        with psycopg.connect(url, autocommit=True) as connection, tempfile.TemporaryDirectory(dir=stage.folder) as folder:
            (Path(folder) / "handlers.py").write_text(HANDLERS)
            made = Relays(COMMAND, Path(folder))
            command = ("work", f"handlers:{words[0]}", *words[1:])
            worker = await made.start(database=url, broker=stage.rabbitmq.url, command=command, settings=settings)
            found = [await handled(stage, url, connection, worker, rows, name) for _ in range(rounds)]
            await made.close()
        figures.append(figure(f"worker, {name}: empty handler", "messages/s", [rate for rate, _ in found], least=least))
        figures.append(figure(f"worker, {name}: its CPU of a message", "µs", [used for _, used in found]))
    return figures


async def handled(
    stage: Stage, url: str, connection: psycopg.Connection[Any], worker: RelayProcess, rows: int, name: str
) -> tuple[float, float]:
    """One round: messages a second, and the worker's CPU of one."""
    connection.execute("TRUNCATE queue_message_archive")
    tidy(url)
    before = cpu(worker.pid)
    with connection.transaction():
        began = value(connection, "SELECT pg_current_xact_id()::text")
        kinds.PLAIN.insert_over(connection, rows)
    await counted(connection, HANDLED, rows)
    used = (cpu(worker.pid) - before) / rows
    rate = value(connection, HANDLED_RATE, began)
    stage.say(f"worker, {name}: {rate:,.0f} messages/s, {used:.0f} µs of its CPU each")
    return rate, used


def inbox(stage: Stage) -> str:
    """A database with an inbox; return its URL."""
    url = stage.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT queue_message_config_set('direction', 'inbox')")
    return url


async def fill(stage: Stage, number: int) -> None:
    """Put messages of some 300 bytes into the queue, each with an id of its own."""
    await stage.lay(kinds.PLAIN)
    async with await aio_pika.connect(stage.rabbitmq.url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        for place in range(ROWS):
            body = f'{{"value": {place}, "pad": "{PAD}"}}'.encode()
            message = aio_pika.Message(body, message_id=f"{number}-{place}", content_type="application/json", delivery_mode=2)
            await channel.default_exchange.publish(message, QUEUE)
        # The broker has taken all when it answers on the same channel.
        await channel.declare_queue(QUEUE, passive=True)


async def counted(connection: psycopg.Connection[Any], statement: str, rows: int, *values: object) -> None:
    """Wait until so many are there."""
    while value(connection, statement, *values) < rows:  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.1)


def value(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    """The only value of a statement."""
    row = connection.execute(statement.encode(), values or None).fetchone()
    assert row is not None
    return row[0]
