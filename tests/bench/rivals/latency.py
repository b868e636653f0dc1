"""How long a message takes from its COMMIT to a consumer at 200 a second, each in a transaction of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process

from tests.bench.figures import Figure, figure
from tests.bench.rivals import ends
from tests.bench.rivals.process import running
from tests.bench.rivals.rival import Rival
from tests.bench.share import Delays
from tests.bench.speed.kinds import SHORT
from tests.bench.speed.stage import Stage

RATE = 200
WARM = 2.0
"""Seconds that are not counted."""
PATIENCE = 30.0
"""Seconds that the consumer waits longer than the writer needs."""


async def measure(stage: Stage, rival: Rival, seconds: float) -> list[Figure]:
    """One run of so many seconds, after a short one that is not counted."""
    database = stage.database()
    rival.prepare(database)
    await stage.lay(SHORT)
    async with running(stage, rival, database):
        await _delays(stage, rival, database, WARM)
        delays = await _delays(stage, rival, database, seconds)
    stage.say(f"{rival.name}: {delays} at {RATE}/s")
    name = f"COMMIT to consumer, {RATE}/s"
    return [figure(f"{name}: p50", "ms", [delays.p50]), figure(f"{name}: p99", "ms", [delays.p99])]


async def _delays(stage: Stage, rival: Rival, database: str, seconds: float) -> Delays:
    count = round(RATE * seconds)
    consumer = await _end("consumer", broker=stage.rabbitmq.url, count=count, seconds=seconds + PATIENCE)
    try:
        assert consumer.stdout is not None
        assert await consumer.stdout.readline() == f"{ends.READY}\n".encode()
        left = await _times(await _end("writer", database=database, insert=rival.statements.insert, count=count, rate=RATE))
        came = await _times(consumer)
    finally:
        if consumer.returncode is None:
            consumer.kill()
    missing = left.keys() - came.keys()
    if missing:
        raise RuntimeError(f"{rival.name}: {len(missing)} of {count} messages did not come")
    return Delays.of([came[number] - left[number] for number in left])


async def _end(end: str, **orders: object) -> Process:
    environment = {**os.environ, ends.ORDERS: json.dumps(orders)}
    return await asyncio.create_subprocess_exec(sys.executable, "-m", ends.__name__, end, stdout=PIPE, env=environment)


async def _times(process: Process) -> dict[str, float]:
    out, _ = await process.communicate()
    assert process.returncode == 0, f"an end of the measurement failed with {process.returncode}"
    return dict(json.loads(out))
