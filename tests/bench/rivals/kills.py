"""A relay killed in the middle of a drain and started again: what is lost, what comes twice, and when the table is empty."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

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
"""Seconds between two looks at the broker's queue."""


class Kill(NamedTuple):
    """What came of one kill: messages, and seconds from the new start until the table was empty or the patience was over."""

    lost: int
    """Neither delivered nor in the table."""
    waiting: int
    dead: int
    extra: int
    seconds: float


_FIGURES = (
    ("lost", "messages"),
    ("still waiting", "messages"),
    ("given up", "messages"),
    ("extra copies", "messages"),
    ("until the table is empty", "s"),
)
"""Name and unit of each field of a `Kill`."""


async def measure(stage: Stage, rival: Rival, rows: int, times: int) -> list[Figure]:
    """So many kills, each in a database of its own."""
    found = [await _killed(stage, rival, rows) for _ in range(times)]
    return [figure(f"kill -9: {name}", unit, [one[place] for one in found]) for place, (name, unit) in enumerate(_FIGURES)]


async def _killed(stage: Stage, rival: Rival, rows: int) -> Kill:
    database = stage.database()
    rival.prepare(database)
    await stage.lay(SHORT)
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        at = await _killed_amid(stage, rival, database, Path(folder), rows)
        empty, seconds = await _emptied(stage, rival, database, Path(folder))
    one = await _counted(stage, rival, database, rows, seconds)
    stage.say(
        f"{rival.name}: killed at {at} of {rows}: {one.lost} lost, {one.waiting} still waiting, {one.dead} given up, "
        f"{one.extra} extra copies, {'empty' if empty else 'not empty'} {seconds:.1f} s after the new start began"
    )
    return one


async def _killed_amid(stage: Stage, rival: Rival, database: str, folder: Path, rows: int) -> int:
    """Let a relay drain a part, and kill it; return how many messages the broker had then.

    Raises:
        RuntimeError: the part was not reached in time, or nothing was left to do for the relay that was killed.
    """
    relay = await started(stage, rival, database, folder)
    try:
        async with backlog.watched(stage.rabbitmq.url) as look:
            _fill(rival, relay, database, rows)
            at = await _reached(look, rows // SHARE)
            relay.kill()  # here, for the end of this connection would give it some milliseconds more
    finally:
        relay.kill()
    with psycopg.connect(database) as connection:
        if at >= rows or not backlog.waits(connection, rival):
            raise RuntimeError(f"The drain was over before the kill: the broker had {at} of {rows} messages.")
    return at


def _fill(rival: Rival, relay: RelayProcess, database: str, rows: int) -> None:
    relay.freeze()
    try:
        with psycopg.connect(database) as connection:
            backlog.fill(connection, rival, rows)
    finally:
        relay.thaw()


async def _reached(look: Callable[[], Awaitable[int]], least: int) -> int:
    """Wait until the broker has so many messages; return how many it has."""
    deadline = time.monotonic() + backlog.PATIENCE
    while (at := await look()) < least:
        if time.monotonic() > deadline:
            raise RuntimeError(f"The broker had only {at} messages after {backlog.PATIENCE:g} s, and the kill was to come at {least}.")
        await asyncio.sleep(_LOOK)
    return at


async def _emptied(stage: Stage, rival: Rival, database: str, folder: Path) -> tuple[bool, float]:
    """Start the relay again and finally kill it; return whether the table became empty, and after how many seconds."""
    began = time.perf_counter()
    relay = await started(stage, rival, database, folder)
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            empty = await backlog.gone(connection, rival)
        return empty, time.perf_counter() - began
    finally:
        relay.kill()


async def _counted(stage: Stage, rival: Rival, database: str, rows: int, seconds: float) -> Kill:
    waiting, dead = (backlog.numbers(database, one) for one in (rival.statements.waiting, rival.statements.dead))
    came = await backlog.received(stage.rabbitmq.url)
    lost = {*range(FIRST, FIRST + rows)} - came.keys() - waiting - dead
    return Kill(len(lost), len(waiting), len(dead), came.total() - len(came), seconds)
