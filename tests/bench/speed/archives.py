"""What a large archive costs: settling into it, and the retention of one of its days."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.bench import machine
from tests.bench.figures import Figure, figure, ratio
from tests.bench.history import History
from tests.bench.speed import kinds
from tests.bench.speed.drains import Drain, drain
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import RelayProcess

ROWS = 10_000_000
DAYS = 30
DRAINED = 20_000
BYTES = 1_000
"""On the disk for an archived message, with its indexes."""
WAL = 10 << 30
NEEDED = ROWS * BYTES + WAL
_WARM = 5_000
_KEPT = "SELECT queue_message_config_set('retention_days', %s)"
_RETAIN = "SELECT action, target FROM queue_message_retain()"
_FLAT = 1.1
_LONGEST = 1.0


async def measure_archives(stage: Stage, rounds: int, *, rows: int = ROWS) -> list[Figure]:
    """Drain with an empty archive and with one of 30 days, in turn; then drop the days of the full one, one after the other.

    Settling adds to today's partition, which is the last of those days and as full as the others.
    """
    if rows * BYTES + WAL > machine.free_bytes():
        stage.say(f"An archive of {rows:,} is left out: it needs {rows * BYTES + WAL >> 30} GiB of free disk.")
        return []
    full = await asyncio.to_thread(_filled, stage, rows)
    await stage.lay(kinds.PLAIN)
    found = await _drained(stage, {"empty": stage.database(), "full": full}, rounds)
    seconds = await asyncio.to_thread(_retained, stage, full, rounds)
    return _figures(found, seconds, rows)


def _filled(stage: Stage, rows: int) -> str:
    """A database with such an archive; nothing of it is too old as long as the relay runs."""
    first = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    history = History(stage.postgres, "speed_archive", a_day=-(-rows // DAYS), first=first)
    with psycopg.connect(history.url, autocommit=True) as connection:
        connection.execute(_KEPT, ["0"])
    history.grow(rows, say=stage.say)
    history.settle_down()
    return history.url


async def _drained(stage: Stage, urls: Mapping[str, str], rounds: int) -> dict[str, list[Drain]]:
    """A relay for each; who does not drain finds nothing, and rests."""
    found = defaultdict[str, list[Drain]](list)
    async with stage.relays(urls["empty"]) as empty, stage.relays(urls["full"]) as full:
        relays = {"empty": empty, "full": full}
        for name, url in urls.items():
            await drain(stage, url, relays[name], kinds.PLAIN, rows=_WARM)
        for number in range(rounds):
            for name in reversed(relays) if number % 2 else relays:
                found[name].append(await _one(stage, urls[name], relays[name], empty=name == "empty"))
                stage.say(f"archive {name}: {found[name][-1].rate:,.0f}/s; PostgreSQL's CPU of a message {found[name][-1].postgres:.1f} µs")
    return found


async def _one(stage: Stage, url: str, relays: Sequence[RelayProcess], *, empty: bool) -> Drain:
    if empty:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("TRUNCATE queue_message_archive")
    tidy(url)
    await stage.purge()
    return await drain(stage, url, relays, kinds.PLAIN, rows=DRAINED)


def _retained(stage: Stage, url: str, count: int) -> list[float]:
    """Seconds of each of the first days that retention drops, with the commit."""
    seconds = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_KEPT, ["1"])
        _gone(connection)  # The day before the first one, which is empty.
        for _ in range(min(count, DAYS - 2)):
            took = _gone(connection)
            stage.say(f"retention of one day: {took:.3f} s")
            seconds.append(took)
    return seconds


def _gone(connection: psycopg.Connection[Any]) -> float:
    began = time.perf_counter()
    done = connection.execute(_RETAIN).fetchall()
    took = time.perf_counter() - began
    assert [action for action, _ in done] == ["dropped"], f"retention did {done}"
    return took


def _figures(found: Mapping[str, Sequence[Drain]], seconds: Sequence[float], rows: int) -> list[Figure]:
    name = f"drain of {DRAINED:,} messages"
    costs = {words: [one.postgres for one in drains] for words, drains in found.items()}
    beside = {"empty": "beside an empty archive", "full": f"beside an archive of {rows:,}"}
    return [
        *(figure(f"{name} {beside[words]}: PostgreSQL's CPU of a message", "µs", some) for words, some in costs.items()),
        ratio(f"{name}: PostgreSQL's CPU {beside['full']} : {beside['empty']}", costs["full"], costs["empty"], most=_FLAT),
        *(figure(f"{name} {beside[words]}", "messages/s", [one.rate for one in drains]) for words, drains in found.items()),
        figure(f"retention of one of {DAYS} days of an archive of {rows:,}", "s", seconds, most=_LONGEST),
    ]
