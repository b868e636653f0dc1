"""A snapshot that stays open, so that vacuum removes nothing: what one relay moves in its first minute and in its last one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import errors

from tests.bench import machine
from tests.bench.figures import Figure, figure, ratio
from tests.bench.speed import kinds
from tests.bench.speed.moments import Moment, Work, between
from tests.bench.speed.stage import Stage, tidy
from tests.support.database.costs import COSTS, Cost
from tests.support.relays.processes import RelayProcess, peak_memory

SECONDS = 600.0
SPAN = 60.0
"""Seconds at the beginning and at the end that are compared."""
KEEP = 1_000
"""Messages that the broker's queue keeps."""
BACKLOG = 60_000
"""When fewer wait, the next ones are inserted. Deletions become visible some seconds late, so there is always a backlog."""
CHUNK = 10_000
BYTES_A_SECOND = 40 << 20
"""On the disk: 15,000 messages, of which nothing is removed, with room to spare; and WAL."""
NEEDED = int(SECONDS * BYTES_A_SECOND)
_PAUSE = 0.1
_WARM = 15.0
"""Seconds under load before the snapshot is taken."""
_LEAST = 0.95
_MEMORY = 120
_DELETED = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'queue_message'"
_SNAPSHOT = "SELECT count(*) FROM (SELECT FROM queue_message LIMIT 1) AS one"


class Span(NamedTuple):
    """A minute: what was settled, and the pages that a claim read for a message where PostgreSQL counts them."""

    work: Work
    pages: float | None

    def __str__(self) -> str:
        work, pages = self.work, "" if self.pages is None else f"; {self.pages:.2f} pages of its claim"
        return f"{work.rate:,.0f}/s; CPU of a message: relay {work.relay:.1f}, PostgreSQL {work.postgres:.1f} µs{pages}"


async def measure_snapshots(stage: Stage, rounds: int, *, seconds: float = SECONDS, span: float = SPAN) -> list[Figure]:
    """Once, however many rounds: a REPEATABLE READ transaction that has looked at the queue, and a backlog that is kept up meanwhile."""
    del rounds
    needed = int(seconds * BYTES_A_SECOND)
    if needed > machine.free_bytes():
        stage.say(f"A snapshot of {seconds:.0f} s is left out: it needs {needed >> 30} GiB of free disk.")
        return []
    url = stage.database()
    await stage.lay(kinds.PLAIN, keep=KEEP)
    async with stage.relays(url) as [relay], _fed(url):
        await asyncio.sleep(_WARM)
        await asyncio.to_thread(tidy, url)
        spans = await _watched(stage, url, relay, [span] * round(seconds / span))
        memory = peak_memory(relay.pid) / machine.MIB
    return _figures(spans, memory, f"snapshot held for {seconds:.0f} s")


async def _watched(stage: Stage, url: str, relay: RelayProcess, spans: Sequence[float]) -> list[Span]:
    """Take the snapshot and look after each span; what was settled is counted in the end."""
    with psycopg.connect(url) as old, psycopg.connect(url, autocommit=True) as connection:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute(_SNAPSHOT)
        seen = [(Moment.now(stage, connection, relay), _claims(connection))]
        for number, span in enumerate(spans):
            stage.say(f"snapshot held for {sum(spans[:number]):.0f} of {sum(spans):.0f} s")
            await asyncio.sleep(span)
            seen.append((Moment.now(stage, connection, relay), _claims(connection)))
        found = [_span(connection, *one, *other) for one, other in itertools.pairwise(seen)]
    for number, one in enumerate(found, 1):
        stage.say(f"part {number} of {len(found)}: {one}")
    return found


def _span(connection: psycopg.Connection[Any], begin: Moment, before: Cost | None, end: Moment, after: Cost | None) -> Span:
    return Span(between(connection, begin, end), after.each(before) if before and after else None)


def _claims(connection: psycopg.Connection[Any]) -> Cost | None:
    """What claims have cost so far."""
    with suppress(errors.UndefinedTable, errors.ObjectNotInPrerequisiteState):
        pages, messages = connection.execute(COSTS).fetchone() or (0.0, 0.0)
        return Cost(pages, messages)
    return None


@asynccontextmanager
async def _fed(url: str) -> AsyncIterator[None]:
    """Somebody keeps up a backlog as long as the block runs; an error of theirs is one of the block."""
    feeding = asyncio.create_task(_feed(url))
    try:
        yield
        assert not feeding.done(), "the feeder has ended"
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError):
            await feeding


async def _feed(url: str) -> None:
    """Insert as fast as it is settled: counted by what was inserted and PostgreSQL's count of deleted rows, without a look at the rows."""
    inserted = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            [deleted] = await (await connection.execute(_DELETED)).fetchone() or [0]
            if inserted - deleted < BACKLOG:
                await asyncio.to_thread(kinds.PLAIN.insert, url, CHUNK)
                inserted += CHUNK
            else:
                await asyncio.sleep(_PAUSE)


def _figures(spans: Sequence[Span], memory: float, name: str) -> list[Figure]:
    first, last = spans[0], spans[-1]
    both = {"first": first, "last": last}
    return [
        *(figure(f"{name}: {words} part", "messages/s", [one.work.rate]) for words, one in both.items()),
        ratio(f"{name}: last part : first", [last.work.rate], [first.work.rate], least=_LEAST),
        *(
            figure(f"{name}: PostgreSQL's CPU with that of the INSERTs, {words} part", "µs", [one.work.postgres])
            for words, one in both.items()
        ),
        *(figure(f"{name}: pages of a claimed message, {words} part", "pages", [one.pages]) for words, one in both.items() if one.pages),
        figure(f"{name}: relay's memory at its peak", "MiB", [memory], most=_MEMORY),
    ]
