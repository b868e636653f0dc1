"""Private servers and relays to measure on."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aio_pika
import psycopg
from psycopg import errors, sql

from relay import devservers
from relay.devservers.borrowed import database_at
from relay.postgres.schema.migrate import migrate
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY, Kind
from tests.support.relays.processes import RelayProcess, Relays

SETTINGS = ("shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=30min", "track_commit_timestamp=on", "wal_init_zero=off")
"""Settings of PostgreSQL that differ from its defaults (fsync is on).

No checkpoint falls into a round by chance, and the end of a round can be read from its last commit. WAL segments are not filled with zeros
before their first use, as on a server that has run for a while.
"""
COMMAND = (sys.executable, "-m", "relay")
CONFIG = ""
"""Settings of RabbitMQ that differ from its defaults."""


class Stage:
    """A PostgreSQL, a RabbitMQ and a folder; databases and relays are made as they are needed."""

    def __init__(self, postgres: devservers.Postgres, rabbitmq: devservers.RabbitMQ, folder: Path) -> None:
        self.postgres = postgres
        self.rabbitmq = rabbitmq
        self.folder = folder
        self._began = time.monotonic()
        self._numbers = itertools.count(1)

    def say(self, line: str) -> None:
        """Tell the person who waits."""
        print(f"[{time.monotonic() - self._began:6.1f} s] {line}", flush=True)  # noqa: T201 - what this command is for

    def database(self) -> str:
        """Make a database with the schema; return its URL."""
        name = f"speed_{next(self._numbers)}"
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        url = database_at(self.postgres.url, name)
        migrate(url, schema="public")
        with psycopg.connect(url, autocommit=True) as connection:
            for extension in ("pg_walinspect", "pg_stat_statements"):
                with suppress(errors.UndefinedFile, errors.FeatureNotSupported):
                    connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
        return url

    @asynccontextmanager
    async def relays(
        self, url: str, count: int = 1, *, settings: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND
    ) -> AsyncIterator[list[RelayProcess]]:
        """Start that many relays with default settings and those given, and kill them in the end."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            made = Relays(command, Path(folder))
            try:
                names = [f"relay-{number}" for number in range(1, count + 1)]
                yield [await made.start(name, database=url, broker=self.rabbitmq.url, settings=settings) for name in names]
            finally:
                await made.close()

    async def lay(self, kind: Kind, *, keep: int | None = None) -> None:
        """Declare again what the messages need; with `keep` the queue holds at most that many messages, and drops the oldest."""
        arguments = {**kind.queue_arguments, **({} if keep is None else {"x-max-length": keep})}
        async with await aio_pika.connect(self.rabbitmq.url) as connection:
            channel = await connection.channel()
            await channel.queue_delete(QUEUE)
            queue = await channel.declare_queue(QUEUE, durable=True, arguments=dict[str, Any](arguments))
            for name in kind.exchange_names:
                await queue.bind(await channel.declare_exchange(name, "direct", durable=True), ROUTING_KEY)

    async def purge(self) -> int:
        """Empty the queue; return how many messages it had."""
        async with await aio_pika.connect(self.rabbitmq.url) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(QUEUE)
            return int((await queue.purge()).message_count or 0)


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Start the servers; they end with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="relay-bench-") as folder,
        devservers.postgres(say=_say, settings=SETTINGS, fsync=True, private=True) as postgres,
        devservers.rabbitmq(say=_say, config=CONFIG, private=True) as rabbitmq,
    ):
        yield Stage(postgres, rabbitmq, Path(folder))


def tidy(url: str) -> None:
    """What autovacuum would have done some time after, and a checkpoint, so that neither falls into a round by chance."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM queue_message")
        connection.execute("CHECKPOINT")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this command is for
