"""What one exchange's flood costs another exchange: the delay from INSERT to consumer, without a flood and during one.

`python -m tests.bench.share [ROUNDS] [BACKLOG]` starts servers of its own. 200 messages a second go to one exchange, each in a transaction
of its own. Then they do so again while BACKLOG messages wait for the other exchange and that backlog keeps growing.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aio_pika
import psycopg
from aio_pika.abc import AbstractIncomingMessage

from relay import devservers
from tests.bench import command
from tests.support.relays.processes import RelayProcess, Relays

RATE = 200
SECONDS = 60.0
"""Of each measurement. Where the flood was alone the first of the others wait for all that is in flight: in 15 seconds one in a hundred."""
REUSED_WAL = "wal_init_zero=off"
"""A new server fills each segment of WAL with zeros before its first use.

Here that is twice a second, and no transaction can commit for 50 ms. A server that has run for a while uses its segments again.
"""
CHUNK = 5_000
PAUSE = 0.25
"""Seconds between two chunks of the flood while it is measured: 20,000 messages a second, more than goes out."""
GOAL = 5.0
INSERT = (
    "INSERT INTO queue_message (exchange, content) SELECT 'flood', jsonb_build_object('pad', repeat('x', 250)) FROM generate_series(1, %s)"
)


class Delays(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Delays:
        """Of all messages of a time."""
        cut = statistics.quantiles(seconds, n=100, method="inclusive")
        return cls(cut[49] * 1000, cut[98] * 1000, max(seconds) * 1000)

    def __str__(self) -> str:
        return f"p50 {self.p50:6.1f} ms, p99 {self.p99:6.1f} ms, longest {self.longest:6.1f} ms"


class Other:
    """The exchange that is not flooded: when its messages leave, and when they arrive."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._left: dict[str, float] = {}
        self._came: dict[str, float] = {}

    async def took(self, message: AbstractIncomingMessage) -> None:
        """A message has come."""
        self._came.setdefault(str(message.message_id), time.monotonic())

    async def delays(self, seconds: float) -> Delays:
        """Insert for so long, wait for the last one, and say what came of it."""
        began, sent = time.monotonic(), []
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            for number in range(int(seconds * RATE)):
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                at = time.monotonic()
                cursor = await connection.execute("INSERT INTO queue_message (exchange) VALUES ('other') RETURNING id::text")
                [[id_]] = await cursor.fetchall()
                self._left[id_] = at
                sent.append(id_)
        async with asyncio.timeout(600):
            while not self._came.keys() >= {*sent}:  # noqa: ASYNC110 - what comes is counted, not awaited
                await asyncio.sleep(0.05)
        return Delays.of([self._came[id_] - self._left[id_] for id_ in sent])


@asynccontextmanager
async def running(name: str, database: str, broker: str) -> AsyncIterator[RelayProcess]:
    """A relay with default settings."""
    with tempfile.TemporaryDirectory() as folder:
        relays = Relays((sys.executable, "-m", "relay"), Path(folder))
        await relays.command("migrate", database=database)
        relay = await relays.start(name, database=database, broker=broker)
        yield relay
        await relay.kill()


async def flood(url: str, messages: int, *, pause: float = 0.0) -> None:
    """Insert messages for the other exchange in transactions of some thousands; with a pause between them without an end."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while messages > 0:
            await connection.execute(INSERT, [CHUNK])
            await asyncio.sleep(pause)
            messages -= 0 if pause else CHUNK


async def settled(url: str) -> int:
    """Messages that have left the queue."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute("SELECT count(*) FROM queue_message_archive WHERE exchange = 'flood'")
        [[count]] = await cursor.fetchall()
        return int(count)


async def measure(url: str, other: Other, backlog: int) -> tuple[Delays, Delays, float]:
    """Measure without the flood, then during it; also return how many messages of the flood went out a second."""
    quiet = await other.delays(SECONDS)
    await flood(url, backlog)
    more = asyncio.create_task(flood(url, 1, pause=PAUSE))
    before, began = await settled(url), time.monotonic()
    beside = await other.delays(SECONDS)
    rate = (await settled(url) - before) / (time.monotonic() - began)
    more.cancel()
    await asyncio.gather(more, return_exceptions=True)
    return quiet, beside, rate


async def prepare(channel: aio_pika.abc.AbstractChannel, other: Other) -> None:
    """Two exchanges; the flood's queue keeps the newest messages alone."""
    for name, arguments in (("flood", {"x-max-length": 1000}), ("other", None)):
        exchange = await channel.declare_exchange(name, "direct")
        queue = await channel.declare_queue(name, arguments=arguments)  # type: ignore[arg-type]
        await queue.bind(exchange, "")
        if name == "other":
            await queue.consume(other.took, no_ack=True)


async def main(rounds: int, backlog: int) -> int:
    """Print each round; 0 if the median of the ratios is good."""
    ratios: list[float] = []
    for number in range(rounds):
        with (
            devservers.postgres(say=_say, settings=[REUSED_WAL], private=True) as postgres,
            devservers.rabbitmq(say=_say, private=True) as rabbitmq,
        ):
            async with await aio_pika.connect(rabbitmq.url) as connection, running("bench", postgres.url, rabbitmq.url):
                other = Other(postgres.url)
                await prepare(await connection.channel(), other)
                quiet, beside, rate = await measure(postgres.url, other, backlog)
        ratios.append(beside.p99 / quiet.p99)
        _say(f"round {number + 1}: load {os.getloadavg()[0]:.1f}")
        _say(f"  quiet  {quiet}\n  beside {beside}; the flood {rate:.0f} messages/s")
        _say(f"  p99 beside a flood: {ratios[-1]:.1f} times the quiet one")
    median = statistics.median(ratios)
    _say(f"median of {rounds}: {median:.1f} times ({min(ratios):.1f} to {max(ratios):.1f}); goal: at most {GOAL:g}")
    return 0 if median <= GOAL else 1


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]] + [3, 1_000_000][len(sys.argv) - 1 :]
    sys.exit(command.run(main(*words)))
