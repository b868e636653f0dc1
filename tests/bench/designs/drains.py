"""Messages inserted, claimed and settled in turns: what each costs, and whether a claim stays as cheap while a snapshot is held."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg

from tests.bench.designs.design import LIMIT, Design, insert, settle
from tests.bench.designs.meter import Cost, Session, session
from tests.bench.designs.stage import Stage

BATCHES = 20
"""Claims at the beginning and at the end that are compared."""
SINGLES = 400
"""Statements that insert one message."""
ROTATE = 40
"""Batches after which empty partitions are looked for: as many messages as one of them takes."""
Figures = dict[str, float]
_TABLES = "FROM pg_stat_user_tables WHERE relname IN (%(table)s, 'ready') OR relname LIKE %(parts)s"
_HOT = f"SELECT sum(n_tup_hot_upd) * 100.0 / sum(n_tup_upd) {_TABLES}"
_SIZE = f"SELECT sum(pg_total_relation_size(relid)) / 1e6 {_TABLES}"


async def drain(stage: Stage, design: type[Design], messages: int) -> Figures:
    """One round of one design."""
    async with stage.database(design) as url, session(url) as application, session(url) as relay:
        one = design(relay)
        found = await _single(application, relay, one)
        begin = [await _batch(application, relay, one) for _ in range(BATCHES)]
        found |= _each(begin) | {"updates in place, %": await _hot(relay, design)}
        found |= await _pages(application, relay, one, "pages of a claim of 500, at first")
        async with snapshot(url, design):
            end = await _many(application, relay, one, messages // LIMIT)
            found |= _flat(begin, end) | await _pages(application, relay, one, "pages of a claim of 500, snapshot held")
            found |= await _room(relay, one)
    return found


async def _single(application: Session, relay: Session, one: Design) -> Figures:
    """Statements of one message each, the first of them not counted."""
    for number in range(SINGLES + 20):
        if number == 20:
            application.spent()
        await insert(application, type(one), 1)
    cost = application.spent()
    await settle(relay, type(one), await one.fresh())
    return {"INSERT of one message, CPU µs": cost.cpu / SINGLES, "INSERT of one message, WAL bytes": cost.wal / SINGLES}


async def _many(application: Session, relay: Session, one: Design, batches: int) -> list[tuple[Cost, Cost, Cost]]:
    costs = []
    for number in range(batches):
        costs.append(await _batch(application, relay, one))
        if number % ROTATE == 0:
            await one.rotate()
            relay.spent()
    return costs[-BATCHES:]


async def _batch(application: Session, relay: Session, one: Design) -> tuple[Cost, Cost, Cost]:
    """Insert, claim, settle."""
    await insert(application, type(one), LIMIT)
    relay.spent()
    claimed = await one.fresh()
    claim = relay.spent()
    assert len(claimed) == LIMIT, f"{one.name}: {len(claimed)} claimed"
    await settle(relay, type(one), claimed)
    return application.spent(), claim, relay.spent()


async def _pages(application: Session, relay: Session, one: Design, name: str) -> Figures:
    relay.counting = True
    *_, claim, _ = await _batch(application, relay, one)
    relay.counting = False
    return {name: claim.pages}


def _each(batches: Sequence[tuple[Cost, Cost, Cost]]) -> Figures:
    found = {}
    for name, costs in zip(("INSERT in statements of 500", "claim", "settle"), zip(*batches, strict=True), strict=True):
        found[f"{name}, CPU µs of a message"] = statistics.median(cost.cpu for cost in costs) / LIMIT
        found[f"{name}, WAL bytes of a message"] = statistics.median(cost.wal for cost in costs) / LIMIT
    return found


def _flat(begin: Sequence[tuple[Cost, Cost, Cost]], end: Sequence[tuple[Cost, Cost, Cost]]) -> Figures:
    first, last = ([claim.seconds * 1e3 for _, claim, _ in batches] for batches in (begin, end))
    return {
        "claim of 500 at first, p50 ms": statistics.median(first), "claim of 500, snapshot held, p50 ms": statistics.median(last),
        "claim of 500 at first, lowest ms": min(first), "claim of 500, snapshot held, lowest ms": min(last),
        "claim, snapshot held, CPU µs of a message": statistics.median(claim.cpu for _, claim, _ in end) / LIMIT,
    }  # fmt: skip


async def _room(relay: Session, one: Design) -> Figures:
    """What nothing could be removed from takes on the disk, and how long one look for empty partitions keeps others from them."""
    relay.spent()
    await one.rotate()
    waited = relay.spent().seconds
    [(size,)] = await relay.run(_SIZE.encode(), _names(type(one)))
    return {"rotation, snapshot held, ms": waited * 1e3, "table and indexes, snapshot held, MB": float(size)}


async def _hot(relay: Session, design: type[Design]) -> float:
    await relay.run(b"SELECT pg_stat_force_next_flush()", {})
    [(share,)] = await relay.run(_HOT.encode(), _names(design))
    return float(share)


def _names(design: type[Design]) -> dict[str, object]:
    return {"table": design.table, "parts": f"{design.table}\\__"}


@asynccontextmanager
async def snapshot(url: str, design: type[Design]) -> AsyncIterator[None]:
    """A transaction that has looked at the queue and stays open."""
    async with await psycopg.AsyncConnection.connect(url) as old:
        await old.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await old.execute(f"SELECT count(*) FROM (SELECT FROM {design.table} LIMIT 1) AS one".encode())
        yield
