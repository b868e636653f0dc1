"""Where a microsecond goes: the CPU of a drained message by stage of the relay and by process of PostgreSQL; it adds up."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from relay.devservers.process import family
from tests.bench.figures import Figure, figure
from tests.bench.speed import kinds
from tests.bench.speed.counters import cpu, cpu_of_all
from tests.bench.speed.drains import ends_of, frozen, gone
from tests.bench.speed.sampled import STAGES
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import RelayProcess

CLAIMS, SETTLES, CONTROL, SERVER = (
    "session that claims",
    "session that settles",
    "session for the rest, and LISTEN",
    "WAL writer and other servers",
)
VACUUM = "autovacuum and sessions that ended"
SESSIONS = (CLAIMS, SETTLES, CONTROL, SERVER, VACUUM)
_ROLES = {"claim": CLAIMS, "settle": SETTLES}
_OURS = "SELECT pid, split_part(application_name, ' ', 2) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%'"
_LOOK = 0.05
Costs = dict[str, float]


async def measure_profile(stage: Stage, rounds: int) -> list[Figure]:
    """Backlogs drained by a relay that notes where it is; one before them is not counted."""
    url, file = stage.database(), stage.folder / "profile.json"
    await stage.lay(kinds.PLAIN)
    command = (sys.executable, "-m", "tests.bench.speed.sampled", str(file))
    found = []
    async with stage.relays(url, command=command) as [relay]:
        for number in range(rounds + 1):
            tidy(url)
            one = await _drained(stage, url, relay, file)
            await stage.purge()
            stage.say(", ".join(f"{name} {cost:.1f} µs" for name, cost in one.items()))
            found += [one] if number else []
    return [figure(f"CPU of a message: {name}", "µs", [one[name] for one in found]) for name in found[0]]


async def _drained(stage: Stage, url: str, relay: RelayProcess, file: Path) -> Costs:
    """Microseconds of a message by stage, by process, and in all."""
    kind, postmaster = kinds.PLAIN, stage.postgres.pid()
    with psycopg.connect(url, autocommit=True) as connection:
        looked = await _looks(relay, file)
        with frozen([relay]):
            kind.insert_over(connection)
            _, last = ends_of(connection)
            before, total = _sessions(connection, postmaster), _totals(stage, relay)
        await gone(connection, last)
        after, now = _sessions(connection, postmaster), _totals(stage, relay)
        looks = await _looks(relay, file) - looked
        mine = connection.info.backend_pid
    relay_cpu, all_of_it, broker = (one - other for one, other in zip(now, total, strict=True))
    own = after[mine][1] - before[mine][1]
    found = _by_stage(looks, relay_cpu) | {"relay in all": relay_cpu}
    found |= _by_session(before, after, mine, all_of_it - own) | {"PostgreSQL in all": all_of_it - own, "broker": broker}
    return {name: cost / kind.rows for name, cost in found.items()}


def _totals(stage: Stage, relay: RelayProcess) -> tuple[float, float, float]:
    """Microseconds of the relay, PostgreSQL and the broker so far."""
    return cpu(relay.pid), cpu_of_all(stage.postgres.pid()), cpu(stage.rabbitmq.pid())


async def _looks(relay: RelayProcess, file: Path) -> Counter[str]:
    """How often the relay was in each stage so far."""
    _forget(file)
    relay.send(signal.SIGUSR1)
    async with asyncio.timeout(10):
        while (told := _told(file)) is None:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(_LOOK)
    return told


def _forget(file: Path) -> None:
    file.unlink(missing_ok=True)


def _told(file: Path) -> Counter[str] | None:
    return Counter(json.loads(file.read_text())) if file.exists() else None


def _sessions(connection: psycopg.Connection[Any], postmaster: int) -> dict[int, tuple[str, float]]:
    """What each process of the server is for, and its microseconds so far."""
    ours = {int(pid): str(role) for pid, role in connection.execute(_OURS)}
    names = {pid: _ROLES.get(ours[pid], CONTROL) if pid in ours else SERVER for pid in family(postmaster)}
    return {pid: (name, cpu(pid)) for pid, name in names.items()}


def _by_stage(looks: Mapping[str, int], whole: float) -> Costs:
    return {f"relay, {name}": whole * looks.get(name, 0) / sum(looks.values()) for name in STAGES}


def _by_session(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]], mine: int, whole: float) -> Costs:
    """What belongs to no process that still lives is that of the ones that ended."""
    found = dict.fromkeys(SESSIONS, 0.0)
    for pid in after.keys() & before.keys() - {mine}:
        found[after[pid][0]] += after[pid][1] - before[pid][1]
    found[VACUUM] = whole - sum(found.values())
    return {f"PostgreSQL, {name}": cost for name, cost in found.items()}
