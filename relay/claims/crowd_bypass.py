"""Claims past a crowd of strangers: the main stream takes them a few at a time, and two streams go ahead of it.

One claims what goes to known exchanges. The other claims what arrives from now on: so an exchange is known as soon as it has a new message.
The main stream stays responsible for everything above its head, so whatever is overlooked here it finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.claims.cursor import Cursor
from relay.claims.stream import Stream
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.message import Batch
from relay.ports import ClaimStore

SAME_FOR = 1.0
"""Seconds until further exchanges that have become known are claimed too: for them it begins again where the main stream is."""


class CrowdBypass:
    """The streams that go ahead, as long as there is a crowd.

    Args:
        store: where messages are claimed.
        strangers: says which exchanges are known.

    """

    def __init__(self, store: ClaimStore, strangers: UnconfirmedExchanges) -> None:
        self._store = store
        self._strangers = strangers
        self.known: Stream | None = None
        """Claims what goes to known exchanges; None without a crowd."""
        self._new: Stream | None = None
        self._turn = 0
        self._until = 0.0

    @property
    def cut(self) -> bool:
        """The last claim for known exchanges did not come to the end."""
        return self.known is not None and self.known.cut

    @property
    def full(self) -> bool:
        """A limit cut it short."""
        return self.known is not None and self.known.full

    def room(self, room: int) -> int:
        """Messages that the main stream may claim."""
        return self._strangers.room(room) if self.known else room

    def turn(self) -> bool:
        """Whether they claim before the main stream now: they take turns."""
        self._turn += 1
        return self.known is not None and bool(self._turn % 2)

    def note(self, main: Stream, batch: Batch | None) -> None:
        """Learn from a claim of the main stream: a full one may show a crowd, and at the end there is none."""
        if not main.cut or (batch and main.full and not self._strangers.crowd(batch)):
            self.restart()
        elif batch and main.full and self.known is None:
            self._begin(main.cursor)
            self._new = Stream(self._store, cursor=main.end())

    def restart(self) -> None:
        """There is no crowd, or the cursor of the main stream is another one: begin again with the next crowd."""
        self.known = self._new = None

    async def claim(self, cursor: Cursor, *, limit: int, limit_bytes: int, excluded: Sequence[str]) -> Batch | None:
        """Claim what goes to known exchanges, where there are any, from the main stream's cursor on."""
        if self.known and self.known.only != {*self._strangers.known} and (not self.known.only or self._strangers.clock() >= self._until):
            self._begin(cursor)
        if not (self.known and self.known.only):
            return None
        return await self.known.claim(limit=limit, limit_bytes=limit_bytes, excluded=excluded)

    async def claim_new(self, *, limit: int, limit_bytes: int, excluded: Sequence[str]) -> Batch | None:
        """Claim what has arrived since. If that is more than fits, what arrives from now on comes next, and the rest in its order."""
        new = self._new
        room = self._strangers.room(limit, reserved=True)
        if not (new and room > 0):
            return None
        batch = await new.claim(limit=room, limit_bytes=limit_bytes, excluded=excluded)
        if new.cut and new is self._new:
            self._new = Stream(self._store, cursor=new.end())
        return batch

    def _begin(self, cursor: Cursor) -> None:
        self.known = Stream(self._store, self._strangers.known, cursor.fork())
        self._until = self._strangers.clock() + SAME_FOR
