"""Claims next to many messages that cannot be claimed now: of a paused exchange, for tomorrow, or passed over by an earlier claim."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import psycopg

from relay.message import Position
from tests.bench.designs.design import Design, Held, insert, settle
from tests.bench.designs.drains import Figures
from tests.bench.designs.meter import Session, session
from tests.bench.designs.stage import tidy

PAUSED = ("paused",)
TOMORROW = 86_400.0
PAST = -1.0
CHUNK = 10_000
"""Messages of a transaction that fills a backlog."""
_LOCK = "SELECT FROM {} WHERE (xid, seq) = (%s::text::xid8, %s) FOR UPDATE"


class Relay:
    """A relay of a design that has just started, and an application next to it."""

    def __init__(self, design: type[Design], url: str, application: Session, relay: Session) -> None:
        self._design = design
        self._url = url
        self._application = application
        self._relay = relay
        self._one = design(relay)

    async def fresh(self, name: str, held: Held = ()) -> Figures:
        """What it costs to claim a new message."""
        wanted = await self._insert()
        return await self._measured(name, self._one.fresh, held, wanted)

    async def due(self, name: str, held: Held = ()) -> Figures:
        """What it costs to claim a message whose wait is over."""
        wanted = await self._insert(delay=PAST)
        return await self._measured(name, self._one.due, held, wanted)

    async def passed_over(self, name: str, held: Held = ()) -> Figures:
        """The cost of finding a message that another session had locked while a claim passed, and then released."""
        wanted = await self._insert()
        async with await psycopg.AsyncConnection.connect(self._url) as other:
            await other.execute(_LOCK.format(self._design.table).encode(), [str(wanted.xid), wanted.seq])
            await self._insert()
            await self._settle(await self._one.fresh(held))
            await other.rollback()
        return await self._measured(name, self._one.left, held, wanted)

    async def untriggered(self, name: str) -> Figures:
        """Whether a message is found that was inserted where triggers do not fire, as a restore or a replica does it."""
        await self._application.run(b"SET session_replication_role = replica", {})
        wanted = await self._insert()
        await self._application.run(b"RESET session_replication_role", {})
        found = await self._one.fresh() or await self._one.left()
        await self._settle(found)
        return {f"{name}: found": float(wanted in found)}

    async def _insert(self, delay: float | None = None) -> Position:
        [position] = await insert(self._application, self._design, 1, delay=delay)
        return position

    async def _measured(self, name: str, look: Callable[[Held], Awaitable[list[Position]]], held: Held, wanted: Position) -> Figures:
        self._relay.spent()
        self._relay.counting = True
        found = await look(held)
        self._relay.counting = False
        cost = self._relay.spent()
        await self._settle(found)
        return {
            f"{name}: found": float(wanted in found), f"{name}: CPU ms": cost.cpu / 1e3,
            f"{name}: CPU ms of its longest statement": cost.longest / 1e3, f"{name}: pages": cost.pages,
        }  # fmt: skip

    async def _settle(self, positions: Sequence[Position]) -> None:
        await settle(self._relay, self._design, positions)


@asynccontextmanager
async def started(design: type[Design], url: str) -> AsyncIterator[Relay]:
    """A relay on a new connection: it remembers nothing."""
    async with session(url) as application, session(url) as relay:
        yield Relay(design, url, application, relay)


async def paused(design: type[Design], url: str) -> Figures:
    """Claims next to the messages of a paused exchange, half of which are due again after a retry."""
    async with started(design, url) as relay:
        found = await relay.fresh("paused: first claim of a fresh message", PAUSED)
        found |= await relay.fresh("paused: next claim of a fresh message", PAUSED)
        found |= await relay.due("paused: first claim of a due message", PAUSED)
        found |= await relay.due("paused: next claim of a due message", PAUSED)
        return found | await relay.passed_over("paused: a row that was locked", PAUSED)


async def future(design: type[Design], url: str) -> Figures:
    """Claims next to messages for tomorrow."""
    async with started(design, url) as relay:
        found = await relay.fresh("tomorrow: first claim of a fresh message")
        found |= await relay.passed_over("tomorrow: a row that was locked")
        return found | await relay.untriggered("tomorrow: a row inserted without triggers")


async def fill_paused(design: type[Design], url: str, rows: int) -> None:
    """A backlog for `paused`."""
    await _fill(design, url, rows // 2, exchange=PAUSED[0], delay=None)
    await _fill(design, url, rows // 2, exchange=PAUSED[0], delay=PAST)


async def fill_future(design: type[Design], url: str, rows: int) -> None:
    """A backlog for `future`."""
    await _fill(design, url, rows, exchange="orders", delay=TOMORROW)


async def _fill(design: type[Design], url: str, rows: int, *, exchange: str, delay: float | None) -> None:
    async with session(url) as application:
        for _ in range(0, rows, CHUNK):
            await insert(application, design, CHUNK, exchange=exchange, delay=delay)
    await tidy(url)
