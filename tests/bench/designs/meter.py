"""A session whose statements are measured where they run: CPU of its server process, WAL, pages, and the time until the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from relay.postgres.session import ALWAYS, BY_INDEX
from tests.bench.speed.counters import cpu
from tests.support.database.plans import explain

SETTINGS = BY_INDEX | ALWAYS


@dataclass
class Cost:
    """What statements have taken: microseconds of CPU, bytes of WAL, seconds, pages, and the CPU of the longest among them."""

    cpu: float = 0.0
    wal: float = 0.0
    seconds: float = 0.0
    pages: int = 0
    longest: float = 0.0
    statements: int = 0


class Session:
    """One connection with the settings of a relay's claims; `cost` adds up until `spent` takes it.

    Pages come from a second connection that runs each statement first and takes it back, while `counting` is on.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], looker: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._looker = looker
        self._cost = Cost()
        self.counting = False

    async def run(self, statement: bytes, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement, measured."""
        pages = (await explain(self._looker, statement, values, SETTINGS)).pages if self.counting else 0
        pid = self._connection.info.backend_pid
        wal, used, began = await self._wal(), cpu(pid), time.perf_counter()
        cursor = await self._connection.execute(statement, values)
        rows = await cursor.fetchall() if cursor.description else []
        took, used = time.perf_counter() - began, cpu(pid) - used
        self._add(Cost(used, await self._wal() - wal, took, pages, used, 1))
        return rows

    def spent(self) -> Cost:
        """What was taken since the last call."""
        cost, self._cost = self._cost, Cost()
        return cost

    def _add(self, one: Cost) -> None:
        so_far = self._cost
        self._cost = Cost(
            so_far.cpu + one.cpu, so_far.wal + one.wal, so_far.seconds + one.seconds, so_far.pages + one.pages,
            max(so_far.longest, one.longest), so_far.statements + 1,
        )  # fmt: skip

    async def _wal(self) -> float:
        row = await (await self._looker.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8")).fetchone()
        assert row is not None
        return float(row[0])


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Session]:
    """A session on a database; its statements are prepared at once."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as one:
        one.prepare_threshold = 0
        for name, value in SETTINGS.items():
            await one.execute("SELECT set_config(%s, %s, false)", [name, value])
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
            yield Session(one, other)
