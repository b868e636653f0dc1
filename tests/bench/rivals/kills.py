"""A relay killed in the middle of a drain and started again: what is lost, what comes twice, and when the table is empty."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psycopg

from tests.bench.figures import Figure, figure
from tests.bench.rivals import backlog
from tests.bench.rivals.process import RelayProcess, started
from tests.bench.rivals.rival import FIRST, Rival
from tests.bench.speed.kinds import SHORT
from tests.bench.speed.stage import Stage

SHARE = 3
"""It is killed when the broker has this part of the messages, the third or more."""
_LOOK = 0.01


async def measure(stage: Stage, rival: Rival, rows: int, times: int) -> list[Figure]:
    """So many kills, each in a database of its own."""
    found = [await _killed(stage, rival, rows) for _ in range(times)]
    names = (("lost", "messages"), ("extra copies", "messages"), ("until the table is empty", "s"))
    return [figure(f"kill -9: {name}", unit, [one[place] for one in found]) for place, (name, unit) in enumerate(names)]


async def _killed(stage: Stage, rival: Rival, rows: int) -> tuple[int, int, float]:
    database = stage.database()
    rival.prepare(database)
    await stage.lay(SHORT)
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        relay = await started(stage, rival, database, Path(folder))
        try:
            at = await _half_way(stage, rival, relay, database, rows)
            began = time.perf_counter()
            relay = await started(stage, rival, database, Path(folder))
            with psycopg.connect(database, autocommit=True) as connection:
                empty = await backlog.gone(connection, rival)
            seconds = time.perf_counter() - began
        finally:
            relay.kill()
    came = await backlog.received(stage.rabbitmq.url)
    lost, extra = len({*range(FIRST, FIRST + rows)} - came.keys()), came.total() - len(came)
    state = "empty" if empty else "not empty"
    stage.say(
        f"{rival.name}: killed at {at} of {rows}: {lost} lost, {extra} extra copies, {state} {seconds:.1f} s after the new start began"
    )
    return lost, extra, seconds


async def _half_way(stage: Stage, rival: Rival, relay: RelayProcess, database: str, rows: int) -> int:
    """Let the relay drain a part, and kill it; return how many messages the broker had then."""
    relay.freeze()
    try:
        with psycopg.connect(database) as connection:
            backlog.fill(connection, rival, rows)
    finally:
        relay.thaw()
    deadline = time.monotonic() + backlog.PATIENCE
    while (at := await backlog.delivered(stage.rabbitmq.url)) < rows // SHARE and time.monotonic() < deadline:
        pass
    relay.kill()
    return at
