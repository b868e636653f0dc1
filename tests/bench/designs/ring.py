"""A ring of small partitions that are truncated once they are empty, claimed by partial indexes."""

from __future__ import annotations

from relay.message import Position
from tests.bench.designs.design import LIMIT, LOCK, Design, Held, composed, positions_of
from tests.bench.designs.meter import Session

SLOTS = 8


class Ring(Design):
    """Claims from all partitions at once, merged in claim order."""

    name = "ring"
    table = "ring"
    schema = "ring_schema"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._statements = {
            "fresh": composed("ring_claim", due="available_at IS NULL", order="xid, seq"),
            "due": composed("ring_claim", due="available_at <= now()", order="available_at"),
        }

    async def fresh(self, held: Held = ()) -> list[Position]:
        """By the index of what has no time."""
        return await self._claim("fresh", held)

    async def due(self, held: Held = ()) -> list[Position]:
        """By the index of what has a time."""
        return await self._claim("due", held)

    async def left(self, held: Held = ()) -> list[Position]:
        """The next claim sees it again."""
        return await self.fresh(held)

    async def rotate(self) -> None:
        """Truncate each partition that is empty."""
        for slot in range(SLOTS):
            await self._session.run(composed("truncate", partition=f"ring_{slot}"), {})

    async def _claim(self, statement: str, held: Held) -> list[Position]:
        return positions_of(await self._session.run(self._statements[statement], {**LOCK, "except": list(held), "limit": LIMIT}))
