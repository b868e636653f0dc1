"""What a message costs when few wait and when many do: drained whole, or at the beginning and at the end of the largest backlog."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import psycopg

from tests.bench import machine
from tests.bench.figures import Figure, figure, ratio
from tests.bench.speed import kinds
from tests.bench.speed.drains import PATIENCE, drain
from tests.bench.speed.moments import Moment, between
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import peak_memory

FEW = 10_000
SHORT = {FEW: 5, 100_000: 1}
"""Backlogs, and how many of each make a round."""
LONG = {FEW: 5, 1_000_000: 1}
LARGEST = 10_000_000
PART = 100_000
"""Messages at the beginning and at the end of the largest backlog of which the cost is taken."""
KEEP = 1_000
"""Messages that the broker's queue keeps, so that it costs the same however many there were."""
BYTES = 2_500
"""On the disk for a message: both tables, their indexes and WAL, with room to spare."""
NEEDED = LARGEST * BYTES
_INSERTED = 100_000
"""Rows of the largest backlog that come in one transaction."""
_WARM = 5_000
_LEAVE = 10_000
"""Messages before a part that are not counted, and after it."""
_UNVACUUMED = 1_000_000
"""Messages that a drain settles in the two minutes or so from one pass of autovacuum to the next."""
_LOOK = 0.025
_FLAT = 1.1
_MEMORY = 120
_NTH = "SELECT xid::text, seq FROM queue_message ORDER BY queue_message.xid, seq OFFSET %s LIMIT 1"
_NTH_LAST = "SELECT xid::text, seq FROM queue_message ORDER BY queue_message.xid DESC, seq DESC OFFSET %s LIMIT 1"
_IS_THERE = "SELECT EXISTS (SELECT FROM queue_message WHERE (xid, seq) = (%s::xid8, %s))"
_CLAIM = """
    UPDATE queue_message SET lock_expires_at = now() + interval '1 minute', lock_token = gen_random_uuid(), locked_by = 1, attempts = 1
    WHERE (xid, seq) < (%s::xid8, %s)
"""
_DELETE = "DELETE FROM queue_message WHERE (xid, seq) < (%s::xid8, %s)"
_Position = tuple[str, int]


class Cost(NamedTuple):
    """Of a message, in microseconds; and megabytes (MiB) of the relay at its peak so far."""

    wall: float
    relay: float
    postgres: float
    memory: float

    @property
    def cpu(self) -> float:
        """Of relay and PostgreSQL."""
        return self.relay + self.postgres

    @classmethod
    def median(cls, some: Sequence[Self]) -> Cost:
        """Of each by itself."""
        return cls(*map(statistics.median, zip(*some, strict=True)))

    def __str__(self) -> str:
        return f"{self.wall:.1f} µs for a message; CPU: relay {self.relay:.1f}, PostgreSQL {self.postgres:.1f} µs; {self.memory:.0f} MiB"


async def measure_backlogs(stage: Stage, rounds: int) -> list[Figure]:
    """Backlogs of 10,000 and 100,000."""
    return _figures(await _drained(stage, stage.database(), SHORT, rounds))


async def measure_long_backlogs(stage: Stage, rounds: int, *, largest: int = LARGEST) -> list[Figure]:
    """Backlogs of 10,000 and a million; then, once, the beginning and the end of one of 10 million."""
    url = stage.database()
    found = await _drained(stage, url, LONG, rounds)
    figures = _figures(found)
    if largest * BYTES > machine.free_bytes():
        stage.say(f"A backlog of {largest:,} is left out: it needs {largest * BYTES >> 30} GiB of free disk.")
        return figures
    few = Cost.median(found[FEW])
    for words, cost in (await _ends(stage, url, largest)).items():
        figures += _of_one(f"{words} {PART:,} of {largest:,}", [cost], [few])
    return figures


async def _drained(stage: Stage, url: str, sizes: Mapping[int, int], rounds: int) -> dict[int, list[Cost]]:
    """Every size in each round, each with a relay of its own; every other round goes the other way round."""
    await stage.lay(kinds.PLAIN, keep=KEEP)
    found = defaultdict[int, list[Cost]](list)
    for number in range(rounds):
        for rows in sorted(sizes, reverse=number % 2 == 1):
            one = Cost.median(await _drains(stage, url, rows, sizes[rows]))
            stage.say(f"backlog of {rows:,}: {one}")
            found[rows].append(one)
    return found


async def _drains(stage: Stage, url: str, rows: int, times: int) -> list[Cost]:
    found = []
    async with stage.relays(url) as relays:
        await drain(stage, url, relays, kinds.PLAIN, rows=_WARM)
        for _ in range(times):
            tidy(url)
            one = await drain(stage, url, relays, kinds.PLAIN, rows=rows)
            found.append(Cost(1e6 / one.rate, one.relay, one.postgres, one.memory))
        await relays[0].stop()
    return found


async def _ends(stage: Stage, url: str, rows: int) -> dict[str, Cost]:
    """What the first messages cost, and the last ones when all between them have gone.

    Autovacuum is off: whether a pass falls into some ten seconds is chance. What it costs is part of the whole drains.
    """
    tidy(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE queue_message SET (autovacuum_enabled = off)")
    for _ in range(rows // _INSERTED):
        await asyncio.to_thread(kinds.PLAIN.insert, url, _INSERTED)
    tidy(url)
    found = {"first": await _part(stage, url)}
    stage.say(f"the first {PART:,} of {rows:,}: {found['first']}")
    await asyncio.to_thread(_take_away, url)
    found["last"] = await _part(stage, url)
    stage.say(f"the last {PART:,} of {rows:,}: {found['last']}")
    return found


async def _part(stage: Stage, url: str) -> Cost:
    """A relay's first messages, but for the very first of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        first, last = (_position(connection, _NTH, behind) for behind in (_LEAVE, _LEAVE + PART))
        async with stage.relays(url) as [relay]:
            await _gone(connection, first)
            begin = Moment.now(stage, connection, relay)
            await _gone(connection, last)
            end, memory = Moment.now(stage, connection, relay), peak_memory(relay.pid) / machine.MIB
            await relay.stop()
        work = between(connection, begin, end)
    return Cost(work.wall, work.relay, work.postgres, memory)


def _take_away(url: str) -> None:
    """Leave the last messages, and the table as a drain would: vacuumed but for what was settled since autovacuum's last pass.

    There a claim has left a dead version of its own on the page; where autovacuum has been, nothing tells any more.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_DELETE, _position(connection, _NTH_LAST, _LEAVE + PART + _LEAVE + _UNVACUUMED))
        tidy(url)
        rest = _position(connection, _NTH_LAST, _LEAVE + PART + _LEAVE)
        connection.execute(_CLAIM, rest)
        connection.execute(_DELETE, rest)


async def _gone(connection: psycopg.Connection[Any], position: _Position) -> None:
    async with asyncio.timeout(PATIENCE):
        while connection.execute(_IS_THERE, position).fetchone() == (True,):  # noqa: ASYNC110 - the relay is looked at from outside
            await asyncio.sleep(_LOOK)


def _position(connection: psycopg.Connection[Any], statement: str, number: int) -> _Position:
    row = connection.execute(statement, [number]).fetchone()
    assert row is not None, f"there is no message with number {number}"
    return str(row[0]), int(row[1])


def _figures(found: Mapping[int, Sequence[Cost]]) -> list[Figure]:
    few = found[FEW]
    figures = [
        figure(f"backlog of {FEW:,}: a message", "µs", [one.wall for one in few]),
        figure(f"backlog of {FEW:,}: CPU of relay and PostgreSQL", "µs", [one.cpu for one in few]),
        figure(f"backlog of {FEW:,}: relay's memory at its peak", "MiB", [one.memory for one in few], most=_MEMORY),
    ]
    for rows in sorted({*found} - {FEW}):
        figures += _of_one(f"backlog of {rows:,}", found[rows], few)
    return figures


def _of_one(name: str, some: Sequence[Cost], few: Sequence[Cost]) -> list[Figure]:
    """Figures of a backlog, compared with the smallest one."""
    walls, cpus = [one.wall for one in some], [one.cpu for one in some]
    return [
        figure(f"{name}: a message", "µs", walls),
        ratio(f"{name}: a message : of {FEW:,}", walls, [one.wall for one in few], most=_FLAT),
        figure(f"{name}: CPU of relay and PostgreSQL", "µs", cpus),
        ratio(f"{name}: CPU : of {FEW:,}", cpus, [one.cpu for one in few], most=_FLAT),
        figure(f"{name}: relay's memory at its peak", "MiB", [one.memory for one in some], most=_MEMORY),
    ]
