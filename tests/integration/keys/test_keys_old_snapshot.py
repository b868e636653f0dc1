"""Messages that were folded while an old snapshot is open cost later folds nothing."""

from __future__ import annotations

import math

import psycopg
import pytest

from relay.events import NOBODY
from relay.maintenance.folds import Folds
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.postgres.session import ALWAYS, IN_ORDER
from relay.queries.statements import Statements
from tests.support.database.keyed import insert, keyed, queued
from tests.support.database.plans import explain
from tests.support.database.queue import Queue

KINDS = pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
STATISTICS = pytest.mark.parametrize("statistics", ["SELECT", "ANALYZE queue_message_keyed_row", "VACUUM ANALYZE queue_message_keyed_row"])
"""Autovacuum runs at any time. While an old snapshot is open, it takes a table full of folded messages for empty."""
SIZES = pytest.mark.parametrize(("length", "count"), [(1, 12_000), (20_000, 1500)], ids=["small", "large"])
MORE = 60
"""Pages that deeper indexes and other plans may take."""
FLOOD = """
    INSERT INTO queue_message_keyed (exchange, content, {kind}, available_at)
    SELECT 'flood', to_jsonb(repeat('x', %s)), 'flood ' || n / 10, now() FROM generate_series(1, %s) AS n
"""
EARLIER = "UPDATE queue_message_keyed_row SET due_at = due_at - interval '1 hour'"


async def read(queue: Queue, since: float) -> list[int]:
    """Pages that a fold and a look read, once the session knows tables and plans."""
    statements = [Statements("public")[name] for name in ("fold_keys", "read_fold")]
    return [
        min([(await explain(queue.connection, statement, {"since": since}, ALWAYS | IN_ORDER)).pages for _ in range(2)])
        for statement in statements
    ]


@KINDS
@SIZES
@STATISTICS
async def test_a_fold_reads_nothing_that_was_folded_under_an_old_snapshot(
    queue: Queue, upkeep: PostgresMaintenance, kind: str, length: int, count: int, statistics: str
) -> None:
    """Neither does the look for what is due next; where each begins at the beginning, it reads all of that."""
    folds = Folds(upkeep, NOBODY)
    await keyed(queue, coalesce_key="one", content=1)
    alone = await read(queue, -math.inf)
    async with await psycopg.AsyncConnection.connect(queue.url) as old:
        await old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await old.execute("SELECT FROM queue_message_keyed_row")
        await queue.sql(FLOOD.format(kind=kind), length, count)
        while (await folds.carry_out())[0]:
            pass
        await queue.sql(statistics)
        since = await queue.value("SELECT extract(epoch FROM clock_timestamp())::float8")
        await keyed(queue, coalesce_key="one", content=1)
        beside, everything = await read(queue, since), await read(queue, -math.inf)
    assert all(now < before + MORE for before, now in zip(alone, beside, strict=True))
    assert all(now > before + MORE for before, now in zip(alone, everything, strict=True))


async def test_a_message_that_commits_late_is_folded_although_later_ones_were(queue: Queue, upkeep: PostgresMaintenance) -> None:
    """It was due before the time at which a fold begins."""
    folds = Folds(upkeep, NOBODY)
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        id_ = await insert(late, coalesce_key="late")
        await late.execute(EARLIER)
        await keyed(queue, coalesce_key="first")
        assert (1, None) == await folds.carry_out()
        await late.commit()

    assert (0, None) == await folds.carry_out()
    assert (due_in := await folds.due_in()) is not None
    assert due_in < 0
    assert (1, None) == await folds.carry_out()
    assert id_ in [queued_id for queued_id, _ in await queued(queue)]
