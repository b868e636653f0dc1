"""No positions: a narrow table next to the queue holds the claimable messages, and a claim deletes their rows."""

from __future__ import annotations

from relay.message import Position
from tests.bench.designs.design import LIMIT, LOCK, Design, Held, composed, positions_of
from tests.bench.designs.meter import Session


class TableBeside(Design):
    """One claim for everything, from the left of the narrow table."""

    name = "table beside"
    table = "queue_message"
    schema = "side_schema"

    def __init__(self, session: Session) -> None:
        self._session = session

    async def fresh(self, held: Held = ()) -> list[Position]:
        """What is due is all the same here."""
        return positions_of(await self._session.run(composed("side_claim"), {**LOCK, "except": list(held), "limit": LIMIT}))

    async def due(self, held: Held = ()) -> list[Position]:
        """See `fresh`."""
        return await self.fresh(held)

    async def left(self, held: Held = ()) -> list[Position]:
        """The next claim sees it again."""
        return await self.fresh(held)

    async def rotate(self) -> None:
        """Nothing to do."""
