"""The head of a key with much behind it that is settled and not yet removed: looked for from the key's bound on, and without one."""

from __future__ import annotations

from relay.claims.key_bounds import NOWHERE, KeyBound
from relay.message import Position
from relay.postgres.parameters import probe
from relay.queries.statements import Statements
from tests.bench.designs.cursor import CursorAndScan
from tests.bench.designs.drains import Figures, snapshot
from tests.bench.designs.meter import Session, session
from tests.bench.designs.stage import Stage

SETTLED = 50_000
_INSERT = b"""
    INSERT INTO queue_message (exchange, ordering_key)
    SELECT 'orders', 'one' FROM generate_series(1, %(count)s) RETURNING xid::text::bigint, seq
"""


async def measure(stage: Stage) -> Figures:
    """One round: under a snapshot that is held open."""
    async with stage.database(CursorAndScan) as url, session(url) as one, snapshot(url, CursorAndScan):
        for _ in range(10):
            await one.run(_INSERT, {"count": SETTLED // 10})
        await one.run(b"DELETE FROM queue_message", {})
        [(xid, seq)] = await one.run(_INSERT, {"count": 1})
        known = KeyBound(Position(xid, seq), ())
        return await _look(one, "with its bound", known) | await _look(one, "without", NOWHERE)


async def _look(one: Session, name: str, bound: KeyBound) -> Figures:
    statement, values = Statements("public")["find_heads"], probe(["one"], [bound], [], [])
    await one.run(statement, values)  # which plans it
    one.spent()
    one.counting = True
    rows = await one.run(statement, values)
    one.counting = False
    cost = one.spent()
    assert rows[0][0] is not None, "the head of the key was not found"
    return {f"head of a key, {name}: CPU ms": cost.cpu / 1e3, f"head of a key, {name}: pages": cost.pages}
