"""A relay's table from outside: what is put in, what still waits, and what came out of the broker's queue."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import psycopg
from pamqp import commands
from pamqp.frame import marshal

from tests.bench.rivals.rival import FIRST, PAD, Rival
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY
from tests.bench.speed.wire import CHANNEL, connect

PATIENCE = 300.0
_LOOK, _LONGEST = 0.02, 0.1
"""Seconds between two looks, at least and at most; a look that takes long is followed by a longer pause, to cost the relay little."""
_SHARE = 0.02
"""Of the time may be spent with looking, within these bounds."""


def insert(
    connection: psycopg.Connection[Any],
    rival: Rival,
    count: int,
    *,
    first: int = FIRST,
    exchange: str = QUEUE,
    routing_key: str = ROUTING_KEY,
) -> None:
    """Insert so many messages with one statement."""
    values = {"first": first, "last": first + count - 1, "exchange": exchange, "routing_key": routing_key, "pad": PAD}
    connection.execute(rival.statements.insert, values)


def fill(connection: psycopg.Connection[Any], rival: Rival, count: int) -> None:
    """Insert a backlog, and let the planner know of it: a plan that was kept from the empty table would be no relay's fault."""
    insert(connection, rival, count)
    for table in rival.statements.tables:
        connection.execute(f"ANALYZE {table}")


def numbers(database: str, statement: str) -> set[int]:
    """Numbers of the messages that a statement finds."""
    with psycopg.connect(database) as connection:
        return {number for [number] in connection.execute(statement)}


def tidy(database: str, rival: Rival) -> None:
    """What autovacuum would have done some time after, and a checkpoint, so that neither falls into a round by chance."""
    with psycopg.connect(database, autocommit=True) as connection:
        for table in rival.statements.tables:
            connection.execute(f"VACUUM {table}")
        connection.execute("CHECKPOINT")


def waits(connection: psycopg.Connection[Any], rival: Rival) -> bool:
    """Whether any message still has to go out."""
    return connection.execute(rival.statements.waits).fetchone() == (True,)


async def gone(connection: psycopg.Connection[Any], rival: Rival, seconds: float = PATIENCE) -> bool:
    """Wait until nothing waits; false if that does not happen in time."""
    deadline = time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        if not waits(connection, rival):
            return True
        if began > deadline:
            return False
        await asyncio.sleep(min(_LONGEST, max(_LOOK, (time.perf_counter() - began) / _SHARE)))


@asynccontextmanager
async def watched(broker: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """One connection that tells, as often as it is asked, how many messages are in the broker's queue."""
    async with await aio_pika.connect(broker) as connection:
        channel = await connection.channel()

        async def look() -> int:
            return int((await channel.get_queue(QUEUE)).declaration_result.message_count or 0)

        yield look


async def received(broker: str) -> Counter[int]:
    """Empty the broker's queue; return how often each message was in it."""
    came = Counter[int]()
    async with watched(broker) as look:
        expected = await look()
    channel = await connect(broker, lambda body: came.update([json.loads(body)["value"]]))
    try:
        await channel.call(marshal(commands.Basic.Consume(queue=QUEUE, no_ack=True), CHANNEL))
        async with asyncio.timeout(PATIENCE):
            while came.total() < expected:
                await channel.news()
    finally:
        channel.close()
    return came
