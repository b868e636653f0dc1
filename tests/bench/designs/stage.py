"""Databases to measure the designs in."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
from psycopg import sql

from relay import devservers
from relay.devservers.borrowed import database_at
from relay.devservers.process import Say
from relay.postgres.schema.migrate import migrate
from tests.bench.designs.beside import TableBeside
from tests.bench.designs.cursor import CursorAndScan
from tests.bench.designs.design import Design, lay
from tests.bench.designs.heads import Heads
from tests.bench.designs.ring import Ring

SETTINGS = ("shared_buffers=1GB", "autovacuum=off", "full_page_writes=off", "max_wal_size=8GB", "checkpoint_timeout=30min")
"""No background work runs during a measurement, and WAL holds only records."""
DESIGNS: tuple[type[Design], ...] = (Heads, CursorAndScan, TableBeside, Ring)
_TEMPLATE = "migrated"
_RELAY = "INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('bench', '0', 'bench', 0)"


class Stage:
    """A private server, and databases on it that are made and dropped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._numbers = itertools.count(1)
        self._run("CREATE DATABASE {}", _TEMPLATE)
        migrate(database_at(url, _TEMPLATE), schema="public")
        with psycopg.connect(database_at(url, _TEMPLATE)) as connection:
            connection.execute(_RELAY)

    @asynccontextmanager
    async def database(self, design: type[Design]) -> AsyncIterator[str]:
        """A database with the design's schema, dropped in the end."""
        name = f"measured_{next(self._numbers)}"
        self._run("CREATE DATABASE {} TEMPLATE {}", name, _TEMPLATE)
        url = database_at(self.url, name)
        try:
            await lay(url, design)
            yield url
        finally:
            self._run("DROP DATABASE {} WITH (FORCE)", name)

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def staged(say: Say) -> Iterator[Stage]:
    """Start the server; it ends with the block."""
    with devservers.postgres(say=say, settings=SETTINGS, private=True) as server:
        yield Stage(server.url)


async def tidy(url: str) -> None:
    """What autovacuum would have done some time after."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("VACUUM ANALYZE")
