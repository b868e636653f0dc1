"""Remembered positions alone: a head for fresh messages, the index of waits for the rest, and a periodic task for those they pass over.

The statements are those of the design that the cursor replaced, copied as they were. No transaction is late here. So its second claim,
which looks into such transactions, is left out: that favours it.
"""

from __future__ import annotations

from typing import Any

from relay.claims.cursor import LAST_SEQ, Snapshot
from relay.message import START, Claim, Position
from tests.bench.designs.design import LIMIT, LOCK, PLENTY, RELAY_ID, Design, Held, composed, positions_of, text
from tests.bench.designs.meter import Session

WALK = 10_000
_WIDTH = len(Claim._fields) - 1


def _claim(due: str) -> bytes:
    walked = "%(walk)s" in text(due)
    parts = {
        "walked": f"walked AS MATERIALIZED (\n{text(due)}\n), " if walked else "",
        "due": text("heads_step") if walked else text(due),
        "reached": text("heads_reached") if walked else "",
        "schema": "public",
    }
    return composed("heads_claim", **parts)


class Heads(Design):
    """The design that the cursor replaced."""

    name = "heads alone"
    table = "queue_message"
    schema = ""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._head = START
        self._paused_at: Position | None = None
        """How far the stream of the paused exchange has got: nothing below this position is looked for."""

    async def fresh(self, held: Held = ()) -> list[Position]:
        """Above the head; while an exchange is paused, in walks."""
        if not held:
            self._paused_at = None
        elif self._paused_at is None:
            self._paused_at = self._head
        while True:
            found, more = await self._above(held)
            if found or not more:
                return found

    async def due(self, held: Held = ()) -> list[Position]:
        """From the left of the index of waits, each time."""
        return positions_of(await self._run("heads_waiting", held, only=None))

    async def left(self, held: Held = ()) -> list[Position]:
        """Each minute the periodic task makes due whatever is claimable below every head, including that of the paused exchange."""
        below = self._paused_at or self._head
        head = {"head_xid": str(below.xid), "head_seq": below.seq, "relay_id": RELAY_ID}
        await self._session.run(text("heads_heartbeat").encode(), head)
        asked = {"below_xid": str(below.xid), "below_seq": below.seq, "silence": 10, "now": None}
        freed = await self._session.run(composed("heads_stranded", schema="public"), asked)
        return await self.due(held) if freed else []

    async def rotate(self) -> None:
        """Nothing to do."""

    async def _above(self, held: Held) -> tuple[list[Position], bool]:
        head = {"head_xid": str(self._head.xid), "head_seq": self._head.seq}
        rows = await self._run("heads_others" if held else "heads_fresh", held, **head, walk=WALK)
        found = positions_of(rows)
        snapshot, due, _, *reached = rows[0][_WIDTH:]
        walked = Position(*reached[0]) if any(reached) else None
        ended = Position(Snapshot.parse(snapshot).xmax - 1, LAST_SEQ)
        self._head = walked or (found[-1] if due >= LIMIT else ended)
        return found, bool(walked) or due >= LIMIT

    async def _run(self, due: str, held: Held, **where: object) -> list[tuple[Any, ...]]:
        values = {**LOCK, **where, "except": list(held), "limit": LIMIT, "limit_bytes": PLENTY, "large": PLENTY, "now": None}
        return await self._session.run(_claim(due), values)
