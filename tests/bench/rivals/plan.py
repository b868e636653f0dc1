"""Who is measured, and what."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from tests.bench.figures import Figure
from tests.bench.rivals import draining, kills, latency, misfits, pg_transactional_outbox
from tests.bench.rivals.afternoon import Afternoon
from tests.bench.rivals.faststream_outbox import FaststreamOutbox
from tests.bench.rivals.ours import OutboxRelay
from tests.bench.rivals.rival import NotInstallableError, Rival
from tests.bench.speed.stage import Stage

RIVALS: dict[str, Rival] = {
    one.name: one
    for one in (OutboxRelay(), Afternoon(), FaststreamOutbox(), pg_transactional_outbox.polling(), pg_transactional_outbox.replication())
}
PARTS = {
    "drain": "a backlog: messages a second beside the bare publisher, CPU, memory",
    "latency": f"{latency.RATE} a second: COMMIT to consumer",
    "misfits": f"one bad message among {misfits.GOOD} good ones: a missing exchange, and no route",
    "kill": "kill -9 in the middle of a drain, and a new start",
}
FAILURES = (RuntimeError, TimeoutError, AssertionError, OSError, psycopg.Error, subprocess.SubprocessError)
"""After these errors the other parts continue."""
QUIET = 0.7
"""Load of the last minute below which a rival begins: what another left behind is none of its own."""
PATIENCE = 90.0
"""Seconds after which it begins all the same."""
_LOOK = 1.0


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    parts: Sequence[str]
    rounds: int
    kills: int
    seconds: float
    rows: int | None = None
    """Messages of a drain at the most."""


@dataclass
class Report:
    """What came of a rival."""

    name: str
    version: str
    settings: str
    rows: int
    load: float
    """Of the machine, when it began."""
    figures: list[Figure] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return {**vars(self), "figures": [one.as_json() for one in self.figures]}


async def measure(stage: Stage, rival: Rival, effort: Effort, keep: Callable[[Report], None]) -> Report:
    """Measure all parts asked for; report in a sentence any part that fails or a rival that cannot be had, and continue.

    Args:
        stage: where.
        rival: who.
        effort: how much.
        keep: is called after each part with what is known.

    """
    rows = min(rival.rows, effort.rows or rival.rows)
    report = Report(rival.name, rival.version, rival.settings, rows, os.getloadavg()[0])
    stage.say(f"{rival.name} ({rival.version}): {rival.settings}")
    try:
        rival.install(stage.say)
        async with _hosting(stage, rival):
            report.load = _quiet(stage, rival)
            for part in effort.parts:
                await _measure(stage, rival, part, effort, report)
                keep(report)
    except NotInstallableError as error:
        report.findings.append(str(error))
        stage.say(str(error))
    keep(report)
    return report


def _quiet(stage: Stage, rival: Rival) -> float:
    """Wait until the machine is quiet, or the patience is over; return the load."""
    began = time.monotonic()
    while (load := os.getloadavg()[0]) >= QUIET and time.monotonic() - began < PATIENCE:
        time.sleep(_LOOK)
    stage.say(f"{rival.name} begins at a load of {load:.2f}, after {time.monotonic() - began:.0f} s of waiting for a quiet machine")
    return load


async def _measure(stage: Stage, rival: Rival, part: str, effort: Effort, report: Report) -> None:
    try:
        match part:
            case "drain":
                report.figures += await draining.measure(stage, rival, report.rows, effort.rounds)
            case "latency":
                figures, sentences = await latency.measure(stage, rival, effort.seconds)
                report.figures += figures
                report.findings += sentences
            case "misfits":
                report.findings += await misfits.measure(stage, rival)
            case "kill":
                report.figures += await kills.measure(stage, rival, report.rows, effort.kills)
    except FAILURES as error:
        report.findings.append(f"{part}: not measured: {error}")
        stage.say(report.findings[-1])


@asynccontextmanager
async def _hosting(stage: Stage, rival: Rival) -> AsyncIterator[None]:
    """PostgreSQL with the settings that a rival cannot do without; the others never see them."""
    if not rival.server:
        yield
        return
    _set(stage, rival.server)
    try:
        yield
    finally:
        _drop_slots(stage)
        _set(stage, dict.fromkeys(rival.server, "DEFAULT"))


def _drop_slots(stage: Stage) -> None:
    """Without logical replication PostgreSQL would not start as long as a slot of it is there."""
    with psycopg.connect(stage.postgres.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active")
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def _set(stage: Stage, settings: Mapping[str, str]) -> None:
    with psycopg.connect(stage.postgres.url, autocommit=True) as connection:
        for name, value in settings.items():
            wanted = sql.SQL("DEFAULT") if value == "DEFAULT" else sql.Literal(value)
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), wanted))
    stage.postgres.restart()
