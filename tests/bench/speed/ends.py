"""The two ends of a delay, each a process of its own: a writer that commits at an even pace, a consumer that notes when a message has come.

`python -m tests.bench.speed.ends writer FILE MESSAGES ROWS RATE` and `… consumer FILE MESSAGES SECONDS`; SPEED_URL has the server's URL.
FILE gets a double for each message, in seconds of CLOCK_MONOTONIC, which the processes of a machine share: the Nth is message N's, and
not-a-number where it did not come.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from array import array
from contextlib import suppress
from pathlib import Path

import psycopg
import uvloop
from pamqp import commands
from pamqp.frame import marshal

from tests.bench.speed.kinds import CHANNEL, QUEUE, ROUTING_KEY
from tests.bench.speed.wire import connect

URL = "SPEED_URL"
READY = b"ready\n"
"""What a consumer says when messages may come."""
_PAD = "x" * 275
_INSERT = """
    INSERT INTO queue_message (exchange, routing_key, content)
    SELECT %s, %s, jsonb_build_object('n', n, 'pad', %s::text) FROM generate_series(%s::int, %s::int) AS n
"""


def write(url: str, count: int, rows: int, rate: float) -> array[float]:
    """Insert messages in transactions of so many, so many messages a second; return when each one's COMMIT was about to be sent."""
    left = array("d")
    with psycopg.connect(url) as connection:
        began = time.monotonic()
        for first in range(0, count, rows):
            last = min(first + rows, count) - 1
            time.sleep(max(0.0, began + first / rate - time.monotonic()))
            connection.execute(_INSERT, [QUEUE, ROUTING_KEY, _PAD, first, last])
            at = time.monotonic()
            connection.commit()
            left.extend([at] * (last - first + 1))
    return left


class Consumer:
    """Takes messages without acknowledging them, and keeps when each came for the first time."""

    def __init__(self, count: int) -> None:
        self.came = array("d", [math.nan]) * count
        self._left = count

    async def take(self, url: str, seconds: float) -> None:
        """Say when messages may come, and take them until all are there or the time is over."""
        channel = await connect(url, self._took)
        await channel.call(marshal(commands.Basic.Consume(queue=QUEUE, no_ack=True), CHANNEL))
        os.write(sys.stdout.fileno(), READY)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._left:
                    await channel.news()
        channel.close()

    def _took(self, body: bytes) -> None:
        at = time.monotonic()
        number = json.loads(body)["n"]
        if math.isnan(self.came[number]):
            self.came[number] = at
            self._left -= 1


def main(role: str, file: str, count: str, *words: str) -> None:
    """Be one of the ends, and write its times."""
    if role == "writer":
        rows, rate = words
        times = write(os.environ[URL], int(count), int(rows), float(rate))
    else:
        consumer = Consumer(int(count))
        uvloop.run(consumer.take(os.environ[URL], *map(float, words)))
        times = consumer.came
    Path(file).write_bytes(times.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
