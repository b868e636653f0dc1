"""Rounds of the scrub over messages that cannot be claimed now, and a real relay next to them.

The figures of the relay are its first delivery, and the delivery of messages that its claims passed over. A round is measured by the
relay's own statements, one page after the other without the rests between them.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg

from relay import devservers
from relay.devservers.process import Say
from relay.message import START, Position
from relay.ports import Page
from relay.postgres.parameters import at, heads_of
from tests.bench.designs import backlogs
from tests.bench.designs.cursor import CursorAndScan
from tests.bench.designs.design import Held, insert, settle
from tests.bench.designs.drains import Figures
from tests.bench.designs.meter import Session, session
from tests.bench.designs.stage import Stage
from tests.support.broker.topology import Declared, Topology
from tests.support.relays.processes import COMMAND, RelayProcess, Relays

TRIES = 5
"""Messages that are locked while a claim passes, and then released."""
_INSERT = "INSERT INTO queue_message (exchange, routing_key) VALUES (%s, %s) RETURNING id::text"
_LOCK = "SELECT FROM queue_message WHERE id = %s FOR UPDATE"
Application = psycopg.AsyncConnection[Any]


class Rounds(CursorAndScan):
    """A relay of which only whole rounds are asked."""

    async def whole(self, held: Held) -> int:
        """One round; return its pages."""
        after, pages = START, 0
        while True:
            page = await self._page(held, after)
            pages += 1
            if page.reached is None:
                return pages
            after = page.reached

    async def _page(self, held: Held, after: Position) -> Page:
        heads = heads_of(self._stream.cursor.head, dict.fromkeys(held, START))
        return await self._scan("left", held, **at("from", after), **heads)


async def statements(url: str, name: str, held: Held) -> Figures:
    """What the first claim of a relay and one round cost the database."""
    async with session(url) as application, session(url) as relay:
        one = Rounds(relay)
        wanted = await insert(application, Rounds, 1)
        found = await one.fresh(held)
        first = relay.spent()
        assert wanted == found
        await settle(relay, Rounds, found)
        relay.spent()
        pages = await one.whole(held)
        cost = relay.spent()
        looked = await _looked_at(relay, one, held)
    return {
        f"{name}, first claim: seconds": first.seconds, f"{name}, first claim: CPU s": first.cpu / 1e6,
        f"{name}, first claim: CPU ms of its longest statement": first.longest / 1e3,
        f"{name}, a round: statements": pages, f"{name}, a round: seconds without rests": cost.seconds,
        f"{name}, a round: CPU s": cost.cpu / 1e6, f"{name}, a round: CPU ms of its longest statement": cost.longest / 1e3,
        f"{name}, a round: pages": looked,
    }  # fmt: skip


async def _looked_at(relay: Session, one: Rounds, held: Held) -> int:
    relay.counting = True
    await one.whole(held)
    relay.counting = False
    return relay.spent().pages


class Beside:
    """A relay's process next to the backlog, and when its messages arrive."""

    def __init__(self, url: str, topology: Topology, inbox: Declared) -> None:
        self._url = url
        self._topology = topology
        self._inbox = inbox

    async def measure(self, name: str, relays: Relays, broker: str) -> Figures:
        """A fresh message waits behind the backlog as the relay starts; others are locked by another session as claims pass them."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as application:
            await self._insert(application)
            began = time.monotonic()
            relay = await relays.start("bench", database=self._url, broker=broker, ready=False)
            await self._comes()
            first = time.monotonic() - began
            found = [await self._passed_over(application, relay) for _ in range(TRIES)]
        return {
            f"{name}, relay: seconds from start to the first delivery": first,
            f"{name}, relay: reports that the database is down": len(relay.of("database_down")),
            f"{name}, relay: a row that was locked, seconds at least": min(found),
            f"{name}, relay: a row that was locked, seconds at most": max(found),
        }

    async def _passed_over(self, application: Application, relay: RelayProcess) -> float:
        """Seconds from the end of a lock until the message comes that a claim has passed meanwhile."""
        async with await psycopg.AsyncConnection.connect(self._url) as other:
            relay.send(signal.SIGSTOP)  # nothing is claimed before the lock is there
            await other.execute(_LOCK, [await self._insert(application)])
            await self._insert(application)
            relay.send(signal.SIGCONT)
            await self._comes()
            began = time.monotonic()
            await other.rollback()
            await self._comes()
            return time.monotonic() - began

    async def _insert(self, application: Application) -> str:
        cursor = await application.execute(_INSERT, [self._inbox.exchange, self._inbox.routing_key])
        [(id_,)] = await cursor.fetchall()
        return str(id_)

    async def _comes(self) -> None:
        await self._topology.drain(self._inbox.queue, 1, seconds=3600)


async def measured(stage: Stage, name: str, rows: int, held: Held, say: Say) -> AsyncIterator[Figures]:
    """Fill a backlog and measure next to it: first the statements, then a relay, which may take an hour."""
    fill = backlogs.fill_paused if held else backlogs.fill_future
    async with stage.database(CursorAndScan) as url:
        await fill(CursorAndScan, url, rows)
        say(f"rounds, {name}: {rows:,} messages are there")
        await _pause(url, held)
        yield await statements(url, name, held)
        yield await _beside(url, name, say)


async def _pause(url: str, held: Held) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        for exchange in held:
            await operator.execute("SELECT queue_message_pause(%s)", [exchange])


async def _beside(url: str, name: str, say: Say) -> Figures:
    with devservers.rabbitmq(say=say, private=True) as server, tempfile.TemporaryDirectory() as folder:
        relays = Relays(COMMAND, Path(folder))
        async with Topology(server.url, "rounds") as topology:
            try:
                return await Beside(url, topology, await topology.declare()).measure(name, relays, server.url)
            finally:
                await relays.close()
