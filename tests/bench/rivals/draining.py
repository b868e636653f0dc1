"""A relay drains a backlog, compared with the bare publisher before and after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.bench.figures import Figure, figure
from tests.bench.rivals import backlog
from tests.bench.rivals.process import RelayProcess, running
from tests.bench.rivals.rival import Rival
from tests.bench.speed import bare
from tests.bench.speed.counters import cpu, cpu_of_all
from tests.bench.speed.kinds import SHORT
from tests.bench.speed.stage import Stage


@dataclass(frozen=True)
class Drain:
    """One backlog: messages a second, microseconds of CPU for a message, megabytes at the peak so far."""

    rate: float
    relay: float
    postgres: float
    memory: float
    bare: float = 0.0

    @property
    def ratio(self) -> float:
        """Share of the bare publisher's rate."""
        return self.rate / self.bare


async def measure(stage: Stage, rival: Rival, rows: int, rounds: int) -> list[Figure]:
    """So many rounds, and one before them that is not counted."""
    database, found = stage.database(), list[Drain]()
    rival.prepare(database)
    await stage.lay(SHORT)
    async with running(stage, rival, database) as relay:
        for number in range(rounds + 1):
            backlog.tidy(database, rival)
            one = await _round(stage, rival, relay, database, rows)
            stage.say(
                f"{rival.name}: {one.rate:,.0f}/s, bare {one.bare:,.0f}/s: {one.ratio:.3f}; CPU of a message: relay {one.relay:.0f}, "
                f"PostgreSQL {one.postgres:.0f} µs; {one.memory:.0f} MiB{'' if number else ' (not counted)'}"
            )
            found += [one] if number else []
    return _figures(found)


def _figures(found: list[Drain]) -> list[Figure]:
    return [
        figure("drain", "messages/s", [one.rate for one in found]),
        figure("bare publisher", "messages/s", [one.bare for one in found]),
        figure("drain : bare", "times", [one.ratio for one in found]),
        figure("relay's CPU of a message", "µs", [one.relay for one in found]),
        figure("PostgreSQL's CPU of a message", "µs", [one.postgres for one in found]),
        figure("relay's memory at its peak", "MiB", [max(one.memory for one in found)]),
    ]


async def _round(stage: Stage, rival: Rival, relay: RelayProcess, database: str, rows: int) -> Drain:
    before = await _bare(stage)
    one = await _drain(stage, rival, relay, database, rows)
    came = await stage.purge()
    if came < rows:
        raise RuntimeError(f"Only {came} messages came of {rows}.")
    if came > rows:
        stage.say(f"{rival.name}: {came - rows} messages came twice")
    after = await _bare(stage)
    return Drain(one.rate, one.relay, one.postgres, one.memory, (before + after) / 2)


async def _drain(stage: Stage, rival: Rival, relay: RelayProcess, database: str, rows: int) -> Drain:
    """Insert while the relay is frozen, let it go, and wait until nothing waits any more."""
    with psycopg.connect(database, autocommit=True) as connection:
        relay.freeze()
        try:
            backlog.fill(connection, rival, rows)
            used = _used(stage, relay, connection)
        finally:
            relay.thaw()
        began = time.perf_counter()
        if not await backlog.gone(connection, rival):
            raise RuntimeError(f"{rival.name} did not drain {rows} messages in {backlog.PATIENCE:g} s: {relay.lines[-5:]}")
        seconds = time.perf_counter() - began
        now = _used(stage, relay, connection)
    return Drain(rows / seconds, (now[0] - used[0]) / rows, (now[1] - used[1]) / rows, relay.memory())


def _used(stage: Stage, relay: RelayProcess, connection: psycopg.Connection[Any]) -> tuple[float, float]:
    """Microseconds of CPU of the relay and of PostgreSQL so far."""
    # The session that watches is no part of the relay's work: its looks walk over all the rows that are done.
    return cpu_of_all(relay.pid), cpu_of_all(stage.postgres.pid()) - cpu(connection.info.backend_pid)


async def _bare(stage: Stage) -> float:
    published = await bare.publish(stage.rabbitmq.url, SHORT)
    await stage.purge()
    return published.rate
