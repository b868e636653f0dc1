"""Both ends of a message's way, each a process of its own: `python -m tests.bench.rivals.ends writer|consumer`.

The orders stand as JSON in the variable `ENDS`; the times, seconds of the machine's monotonic clock by message, go to standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg
import uvloop
from pamqp import commands
from pamqp.frame import marshal

from tests.bench.rivals.rival import PAD
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY
from tests.bench.speed.wire import CHANNEL, connect

ORDERS = "ENDS"
READY = "ready"
Times = dict[int, float]


def write(database: str, insert: str, first: int, count: int, rate: float) -> Times:
    """Insert one message after the other, each in a transaction; the times are those just before COMMIT is sent."""
    times, values = Times(), {"exchange": QUEUE, "routing_key": ROUTING_KEY, "pad": PAD}
    with psycopg.connect(database, autocommit=True) as connection:
        began = time.monotonic()
        for number in range(first, first + count):
            time.sleep(max(0.0, began + (number - first) / rate - time.monotonic()))
            connection.execute("BEGIN")
            connection.execute(insert, {**values, "first": number, "last": number})
            times[number] = time.monotonic()
            connection.execute("COMMIT")
    return times


async def consume(broker: str, count: int, seconds: float) -> Times:
    """Take messages until all have come or the time is over; the times are those at which the body was there."""
    times = Times()

    def came(body: bytes) -> None:
        times.setdefault(json.loads(body)["value"], time.monotonic())

    channel = await connect(broker, came)
    await channel.call(marshal(commands.Basic.Consume(queue=QUEUE, no_ack=True), CHANNEL))
    print(READY, flush=True)  # noqa: T201 - the writer waits for it
    try:
        async with asyncio.timeout(seconds):
            while len(times) < count:
                await channel.news()
    except TimeoutError:
        pass
    return times


def main(end: str, orders: dict[str, Any]) -> None:
    """Be one of the two."""
    times = write(**orders) if end == "writer" else uvloop.run(consume(**orders))
    json.dump(times, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(os.environ[ORDERS]))
