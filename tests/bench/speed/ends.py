"""The two ends of a delay, each a process of its own: a writer that commits at an even pace, a consumer that notes when a message has come.

`python -m tests.bench.speed.ends writer|consumer`: the orders stand as JSON in the variable ENDS; the times by message, in seconds of
CLOCK_MONOTONIC, which the processes of a machine share, go to standard output. A message carries its number as `value`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

import psycopg
import uvloop
from pamqp import commands
from pamqp.frame import marshal

from tests.bench.speed.kinds import CHANNEL, QUEUE
from tests.bench.speed.wire import connect

ORDERS = "ENDS"
READY = "ready"
"""What a consumer says when messages may come."""
Times = dict[int, float]


def write(database: str, insert: str, values: dict[str, object], first: int, count: int, rows: int, rate: float) -> Times:
    """Insert messages in transactions of so many, so many messages a second; the times are those just before COMMIT is sent."""
    times = Times()
    with psycopg.connect(database) as connection:
        began = time.monotonic()
        for done in range(0, count, rows):
            some = range(first + done, first + min(done + rows, count))
            time.sleep(max(0.0, began + done / rate - time.monotonic()))
            connection.execute(insert, {**values, "first": some[0], "last": some[-1]})
            times |= dict.fromkeys(some, time.monotonic())
            connection.commit()
    return times


async def consume(broker: str, count: int, seconds: float) -> Times:
    """Take messages until all have come or the time is over; the times are those at which the body was there for the first time."""
    times = Times()

    def came(body: bytes) -> None:
        at = time.monotonic()
        times.setdefault(json.loads(body)["value"], at)

    channel = await connect(broker, came)
    await channel.call(marshal(commands.Basic.Consume(queue=QUEUE, no_ack=True), CHANNEL))
    print(READY, flush=True)  # noqa: T201 - the writer waits for it
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while len(times) < count:
                await channel.news()
    channel.close()
    return times


async def both(*, writer: dict[str, object], consumer: dict[str, object]) -> tuple[Times, Times]:
    """Run both, the writer as soon as messages may come; when each message left, and when it came if it did."""
    taking = await _end("consumer", consumer)
    try:
        assert taking.stdout is not None
        assert await taking.stdout.readline() == f"{READY}\n".encode()
        left = await _times(await _end("writer", writer))
        return left, await _times(taking)
    finally:
        if taking.returncode is None:
            taking.kill()


async def _end(end: str, orders: dict[str, object]) -> Process:
    environment = {**os.environ, ORDERS: json.dumps(orders)}
    return await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, end, stdout=PIPE, env=environment)


async def _times(process: Process) -> Times:
    out, _ = await process.communicate()
    assert process.returncode == 0, f"an end of the measurement failed with {process.returncode}"
    return {int(number): at for number, at in json.loads(out).items()}


def main(end: str, orders: dict[str, Any]) -> None:
    """Be one of the two."""
    json.dump(write(**orders) if end == "writer" else uvloop.run(consume(**orders)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(os.environ[ORDERS]))
