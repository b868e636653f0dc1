"""The relay's own way, by its own statements: a cursor with bounded ranges, a scan of what came due, a scan of everything on the left."""

from __future__ import annotations

from relay.claims.intake import PAST
from relay.claims.stream import Stream
from relay.engine.policy import Policy
from relay.message import START, Batch, Claim, Position
from relay.ports import At, Claimed, Page, Wanted
from relay.postgres.parameters import at, bounds_of, heads_of, page_of, wanted_of
from relay.postgres.store import LAG, MAX_FINDINGS, PAGE
from relay.queries.statements import Statements
from tests.bench.designs.design import LIMIT, LOCK, PLENTY, TOKEN, Design, Held
from tests.bench.designs.meter import Session

_WIDTH = len(Claim._fields)


class CursorAndScan(Design):
    """What the relay does."""

    name = "cursor and scan"
    table = "queue_message"
    schema = ""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._statements = Statements("public")
        self._stream = Stream(self)
        self._after = PAST

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """See `relay.ports.ClaimStore`."""
        statement, where = wanted_of(wanted)
        values = {**LOCK, **where, "limit": limit, "limit_bytes": limit_bytes, "large": PLENTY, "now": None}
        rows = await self._session.run(self._statements.claim(statement), values)
        claims = [Claim._make(row[:_WIDTH]) for row in rows if row[0] is not None]
        snapshot, found, _clock, _refused, *bounds = rows[0][_WIDTH:]
        batch = Batch(TOKEN, claims, 0.0, 0.0, 0.0, wanted.source) if claims else None
        last = claims[-1].position if claims else None
        return Claimed(batch, snapshot, full=found >= limit, last=last, bounds=bounds_of(bounds))

    async def fresh(self, held: Held = ()) -> list[Position]:
        """The cursor, until it finds something or has come to the end."""
        while True:
            batch = await self._stream.claim(limit=LIMIT, limit_bytes=PLENTY, excluded=held)
            if batch or not self._stream.cut:
                return _positions(batch)

    async def due(self, held: Held = ()) -> list[Position]:
        """What has come due since the last scan, by position."""
        while True:
            page = await self._scan("due", held, after=self._after.time, **at("from", self._after.position), **heads_of(START, {}))
            self._after = page.due
            if page.findings or page.reached is None:
                return await self._claimed(page)

    async def left(self, held: Held = ()) -> list[Position]:
        """One round of the scrub, as far as it has to go."""
        after, heads = START, heads_of(self._stream.cursor.head, dict.fromkeys(held, START))
        while True:
            page = await self._scan("left", held, **at("from", after), **heads)
            if page.findings or page.reached is None:
                return await self._claimed(page)
            after = page.reached

    async def rotate(self) -> None:
        """Nothing to do."""

    async def _claimed(self, page: Page) -> list[Position]:
        positions = [one.position for one in page.findings if one.kind in {"waiting", "stranded"}]
        return _positions((await self.claim(At(positions, "waiting"), limit=LIMIT, limit_bytes=PLENTY)).batch) if positions else []

    async def _scan(self, name: str, held: Held, **where: object) -> Page:
        values = {
            **where, "held": list(held), "crowded": [], "lanes": [], "walk": PAGE, "most": MAX_FINDINGS, "lag": LAG,
            "lock_seconds": LOCK["lock_seconds"], "now": None,
        }  # fmt: skip
        return page_of(await self._session.run(self._statements.scan(name), values), Policy())


def _positions(batch: Batch | None) -> list[Position]:
    return [claim.position for claim in batch.claims] if batch else []
