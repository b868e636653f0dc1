"""`python -m tests.bench.settles [MESSAGES] [ROUNDS]`: what the forms of a settle cost the database, in turn on rows of the same kind."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psycopg

from relay import devservers
from relay.engine.policy import Policy
from relay.message import SUCCESS, Batch
from relay.ports import SettleRow
from relay.postgres.parameters import settle_of
from relay.postgres.schema.migrate import migrate
from relay.postgres.session import BY_INDEX, Session
from relay.postgres.settling import BRIEF, LONG
from relay.queries import statements
from tests.support.database.queue import MadeStore
from tests.support.servers.shared import Databases

NOW = statements.text("settle").replace("@schema@", "public")
PLAIN = (
    (NOW[NOW.index("), free AS") : NOW.index("), deleted AS")], ""),
    ("USING outcome", "USING named AS outcome"),
    (
        "    FROM set_config('lock_timeout', coalesce(%(patience)s, current_setting('lock_timeout')), true),\n        unnest",
        "    FROM unnest",
    ),
    (NOW[NOW.index(", %(skip)s AND EXISTS") : NOW.index("FROM named LEFT JOIN")], "\n"),
)
"""What a settle was before it could skip rows."""
ASKED = "SELECT pg_current_wal_insert_lsn() - '0/0'"
FILL = "INSERT INTO queue_message (exchange, content) SELECT 'e', jsonb_build_object('x', repeat('a', 250)) FROM generate_series(1, %s)"
WARM = 6
"""Rounds that do not count."""


class Cost(NamedTuple):
    """Of one message."""

    latency: float
    cpu: float
    wal: float


def forms() -> dict[str, tuple[bytes, Mapping[str, object]]]:
    """Statement and parameters by name."""
    before = NOW
    for text, instead in PLAIN:
        assert before.count(text) == 1, text
        before = before.replace(text, instead)
    brief, always = {"skip": False, "patience": BRIEF}, {"skip": True, "patience": LONG}
    return {"before": (before.encode(), {}), "now": (NOW.encode(), brief), "skip": (NOW.encode(), always), "again": (before.encode(), {})}


def cpu_of(pid: int) -> float:
    """Microseconds that a process has had of a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


class Form:
    """One form in a session of its own."""

    def __init__(self, url: str, statement: bytes, values: Mapping[str, object]) -> None:
        self.session = Session(url, application_name="bench", settings=BY_INDEX)
        self._statement = statement
        self._values = values
        self.costs: list[Cost] = []

    async def settle(self, batch: Batch, watch: psycopg.AsyncConnection[tuple[float]]) -> None:
        """Settle a batch and note what it cost."""
        [(pid,)] = await self.session.fetch(b"SELECT pg_backend_pid()", {})
        values = settle_of(batch, [SettleRow(claim, SUCCESS, 1, 2) for claim in batch.claims], name="b", policy=Policy())
        wal, cpu, began = await written(watch), cpu_of(pid), time.perf_counter()
        assert [] == await self.session.fetch(self._statement, {**values, **self._values})
        took, cpu, wal = time.perf_counter() - began, cpu_of(pid) - cpu, await written(watch) - wal
        self.costs.append(Cost(*(figure / len(batch.claims) for figure in (took * 1e6, cpu, wal))))


async def written(watch: psycopg.AsyncConnection[tuple[float]]) -> float:
    """Bytes of WAL so far."""
    [(position,)] = await (await watch.execute(ASKED)).fetchall()
    return float(position)


async def measure(url: str, messages: int, rounds: int) -> dict[str, Cost]:
    """Medians by form."""
    store = MadeStore(conninfo=url, schema="public", name="b", policy=Policy)
    await store.register()
    made = {name: Form(url, *form) for name, form in forms().items()}
    async with await psycopg.AsyncConnection[tuple[float]].connect(url, autocommit=True) as watch:
        for round_ in range(rounds + WARM):
            order = [*made.values()]
            for form in order[round_ % len(order) :] + order[: round_ % len(order)]:
                await watch.execute(FILL, [messages])
                await form.settle(await store.batch(limit=messages), watch)
            if not round_ % 10:
                await watch.execute("VACUUM queue_message")
                await watch.execute("CHECKPOINT")
    for session in (*store._sessions, *(form.session for form in made.values())):
        await session.aclose()
    return {name: Cost(*map(statistics.median, zip(*form.costs[WARM:], strict=True))) for name, form in made.items()}


def main(messages: int = 1000, rounds: int = 100) -> None:
    """Measure on a server of its own, and print."""
    with devservers.postgres(say=print, private=True) as server:
        databases = Databases(server.url)
        url = databases.url(databases.create())
        migrate(url, schema="public", seed={})
        costs = asyncio.run(measure(url, messages, rounds))
    for name, cost in costs.items():
        told = (f"{part} {one:.2f} ({one / first - 1:+.1%})" for part, one, first in zip(cost._fields, cost, costs["before"], strict=True))
        print(name, *told)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
