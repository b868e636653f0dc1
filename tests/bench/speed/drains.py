"""One relay or more drain a backlog, compared with the bare publisher before and after."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.bench.speed import bare
from tests.bench.speed.counters import Counted, updates_of, wal_between
from tests.bench.speed.kinds import Kind
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import RelayProcess, peak_memory

PATIENCE = 600.0
_LOOK = 0.025
"""Seconds between two looks whether the last message has gone; a look costs PostgreSQL some 30 microseconds."""
_REPORTED = 12.0
"""Seconds in which a session of PostgreSQL has reported what it has counted."""
_SPAN = """
    SELECT extract(epoch FROM max(pg_xact_commit_timestamp(archived_xid::xid)) - min(claimed_at))::float8, count(*),
        count(*) FILTER (WHERE result <> 'success')
    FROM queue_message_archive WHERE archived_xid >= %s::xid8
"""

_LAST = """
    SELECT xid::text, seq, pg_snapshot_xmax(pg_current_snapshot())::text
    FROM queue_message ORDER BY queue_message.xid DESC, seq DESC LIMIT 1
"""
_IS_THERE = "SELECT EXISTS (SELECT FROM queue_message WHERE (xid, seq) = (%s::xid8, %s))"
_IS_ANY_THERE = "SELECT EXISTS (SELECT FROM queue_message)"


@dataclass(frozen=True)
class Drain:
    """One backlog: seconds from its first claim to the commit of its last settle, microseconds of CPU and bytes for a message."""

    rows: int
    seconds: float
    relay: float
    postgres: float
    broker: float
    wal: float
    images: float
    """Full-page images, bytes for a message; they are not part of `wal`."""
    memory: float
    """Megabytes of the largest relay, at its peak so far."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.rows / self.seconds


@dataclass(frozen=True)
class Round:
    """A drain between two runs of the bare publisher."""

    drain: Drain
    before: bare.Published
    after: bare.Published

    @property
    def bare(self) -> float:
        """Messages a second of the bare publisher."""
        return (self.before.rate + self.after.rate) / 2

    @property
    def ratio(self) -> float:
        """Share of the bare publisher's rate."""
        return self.drain.rate / self.bare

    def __str__(self) -> str:
        drain = self.drain
        return (
            f"bare {self.before.rate:,.0f}/s and {self.after.rate:,.0f}/s, relay {drain.rate:,.0f}/s: {self.ratio:.2f}; CPU of a message: "
            f"relay {drain.relay:.1f}, PostgreSQL {drain.postgres:.1f}, broker {drain.broker:.1f} µs; "
            f"WAL {drain.wal:.0f} B and {drain.images:.0f} B of images"
        )


async def drain(stage: Stage, url: str, relays: Sequence[RelayProcess], kind: Kind, *, rows: int | None = None) -> Drain:
    """Insert a backlog while the relays are frozen, let them go, and wait until it has gone."""
    count = rows or kind.rows
    with psycopg.connect(url, autocommit=True) as connection:
        with frozen(relays):
            kind.insert_over(connection, count)
            first, last = ends_of(connection)
            before = _counted(stage, connection, relays)
        await gone(connection, last)
        after = _counted(stage, connection, relays)
        seconds, archived, others = _row(connection, _SPAN, first)
        wal, images = wal_between(connection, before.lsn, after.lsn)
    assert (count, 0) == (archived, others), f"{archived} of {count} archived, {others} without success"
    memory = max(peak_memory(relay.pid) for relay in relays) / (1 << 20)
    relay, postgres, broker = ((getattr(after, name) - getattr(before, name)) / count for name in ("relays", "postgres", "broker"))
    return Drain(count, seconds, relay, postgres, broker, (wal - images) / count, images / count, memory)


@contextmanager
def frozen(relays: Sequence[RelayProcess]) -> Iterator[None]:
    """Relays that do nothing until the block ends."""
    for relay in relays:
        relay.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for relay in relays:
            relay.send(signal.SIGCONT)


async def rounds(
    stage: Stage, url: str, relays: Sequence[RelayProcess], kind: Kind, *, count: int, window: int = bare.WINDOW
) -> list[Round]:
    """So many rounds, and one before them that is not counted."""
    await stage.lay(kind)
    found = []
    for number in range(count + 1):
        tidy(url)
        published = [await _bare(stage, kind, window)]
        drained = await drain(stage, url, relays, kind)
        assert kind.rows == await stage.purge(), "the queue has other messages than were inserted"
        published.append(await _bare(stage, kind, window))
        one = Round(drained, *published)
        stage.say(f"{kind.name}: {one}{'' if number else ' (not counted)'}")
        found += [one] if number else []
    return found


async def hot_share(url: str, before: tuple[int, int]) -> float:
    """Share of the updates since that stayed on their page, when nothing is reported any more."""
    now, last = updates_of(url), before
    while now != last:
        await asyncio.sleep(_REPORTED)
        now, last = updates_of(url), now
    return (now[1] - before[1]) / (now[0] - before[0])


async def _bare(stage: Stage, kind: Kind, window: int) -> bare.Published:
    published = await bare.publish(stage.rabbitmq.url, kind, window=window)
    await stage.purge()
    return published


def ends_of(connection: psycopg.Connection[Any]) -> tuple[str, tuple[str, int]]:
    """The first transaction that may settle, and the last message's position."""
    xid, seq, next_xid = _row(connection, _LAST)
    return next_xid, (xid, seq)


async def gone(connection: psycopg.Connection[Any], last: tuple[str, int]) -> None:
    """Wait until the last message has gone, and all others with it."""
    async with asyncio.timeout(PATIENCE):
        while _row(connection, _IS_THERE, *last) == (True,):  # noqa: ASYNC110 - the relay is looked at from outside
            await asyncio.sleep(_LOOK)
        while _row(connection, _IS_ANY_THERE) == (True,):  # noqa: ASYNC110 - as above
            await asyncio.sleep(_LOOK)


def _counted(stage: Stage, connection: psycopg.Connection[Any], relays: Sequence[RelayProcess]) -> Counted:
    pids = [relay.pid for relay in relays]
    return Counted.now(connection, relays=pids, postgres=stage.postgres.pid(), broker=stage.rabbitmq.pid())


def _row(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    return connection.execute(statement, values).fetchone()
