"""Reads the database independently of shop and relays: the progress, each relay's messages, and the archive for the ledger."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from relay.demo import ledger
from relay.demo.journal import Journal
from relay.demo.statements import statement


class Holder(NamedTuple):
    """A relay with messages in flight."""

    relay_id: int
    name: str
    pid: int
    held: int


class Progress(NamedTuple):
    """The progress of the demo, in messages."""

    waiting: int
    successes: int
    dead: int


class Observer:
    """Has a connection of its own, in autocommit mode."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._ahead = 0.0

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect, and compare the clocks."""
        observer = cls(await AsyncConnection.connect(url, autocommit=True, application_name="demo observer"))
        before = time.time()
        [[clock]] = await observer._rows("read_clock")
        observer._ahead = clock - (before + time.time()) / 2
        return observer

    async def aclose(self) -> None:
        """Disconnect."""
        await self._connection.close()

    def clock(self) -> float:
        """Seconds since 1970 by the database's clock."""
        return time.time() + self._ahead

    async def progress(self) -> Progress:
        """Count queue and archive."""
        [row] = await self._rows("count_progress")
        return Progress(*row)

    async def holders(self) -> list[Holder]:
        """The relays that have messages in flight now, the relay with the most first."""
        return [Holder(*row) for row in await self._rows("count_held")]

    async def is_quiet(self, name: str) -> bool:
        """Whether no statement of that relay is running."""
        [(active, _)] = await self._rows("count_active", prefix=f"outbox-relay/{name} ")
        return not active

    async def has_left(self, name: str) -> bool:
        """Whether the database has noticed that this relay has ended."""
        [(_, standing)] = await self._rows("count_active", prefix=f"outbox-relay/{name} ")
        return not standing

    async def is_empty(self) -> bool:
        """Whether the queue is empty."""
        return not (await self.progress()).waiting

    async def held_by(self, relay_id: int) -> list[str]:
        """Ids of the messages that this relay has locked."""
        return [id_ for (id_,) in await self._rows("list_held", relay_id=relay_id)]

    async def sweep(self) -> int:
        """Free or archive the messages whose locks have expired; return how many messages were archived."""
        [(_, archived)] = await self._rows("sweep_locks")
        return int(archived)

    async def write_ledger(self, folder: Path) -> None:
        """Write the current rows of archive and queue to the ledger."""
        for name, listed in ((ledger.ARCHIVE, "list_archive"), (ledger.QUEUE, "list_queue")):
            with Journal(folder / name) as journal:
                async with self._connection.cursor(row_factory=dict_row) as cursor:
                    await cursor.execute(statement(listed))
                    async for row in cursor:
                        journal.note(**row)

    async def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(statement(name), values)).fetchall()
