"""Claims past a crowd of strangers, which are exchanges that have not confirmed a message yet.

The main stream claims few of their messages at a time, and two other streams run ahead of it. The first claims messages of known
exchanges. The second claims new messages, so a working exchange becomes known as soon as it has a new message. The main stream still
reads everything above the head of its cursor, so it finds any message that the two other streams overlook.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.claims.cursor import Cursor
from relay.claims.stream import Stream
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.message import Batch
from relay.ports import ClaimStore

SAME_FOR = 1.0
"""Seconds until the first stream adds exchanges that have become known; the stream then starts again at the main stream's cursor."""


class CrowdBypass:
    """The streams that run ahead of the main stream, as long as there is a crowd.

    Args:
        store: where messages are claimed.
        strangers: says which exchanges are known.

    """

    def __init__(self, store: ClaimStore, strangers: UnconfirmedExchanges) -> None:
        self._store = store
        self._strangers = strangers
        self.known: Stream | None = None
        """Claims messages of known exchanges; None if there is no crowd."""
        self._new: Stream | None = None
        self._turn = 0
        self._until = 0.0

    @property
    def cut(self) -> bool:
        """Whether the last claim for known exchanges stopped before the end."""
        return self.known is not None and self.known.cut

    @property
    def full(self) -> bool:
        """Whether the last claim for known exchanges stopped at a limit on messages or bytes."""
        return self.known is not None and self.known.full

    def room(self, room: int) -> int:
        """Messages that the main stream may claim."""
        return self._strangers.room(room) if self.known else room

    def turn(self) -> bool:
        """Whether the two streams now claim before the main stream; they alternate with it."""
        self._turn += 1
        return self.known is not None and bool(self._turn % 2)

    def note(self, main: Stream, batch: Batch | None) -> None:
        """Learn from a claim of the main stream: a full claim may show a crowd; a claim that reaches the end shows no crowd."""
        if not main.cut or (batch and main.full and not self._strangers.crowd(batch)):
            self.restart()
        elif batch and main.full and self.known is None:
            self._begin(main.cursor)
            self._new = Stream(self._store, cursor=main.end())

    def restart(self) -> None:
        """There is no crowd, or the main stream has a new cursor: begin again with the next crowd."""
        self.known = self._new = None

    async def claim(self, cursor: Cursor, *, limit: int, limit_bytes: int, excluded: Sequence[str]) -> Batch | None:
        """Claim messages of known exchanges, if there are known exchanges, from the main stream's cursor on."""
        if self.known and self.known.only != {*self._strangers.known} and (not self.known.only or self._strangers.clock() >= self._until):
            self._begin(cursor)
        if not (self.known and self.known.only):
            return None
        return await self.known.claim(limit=limit, limit_bytes=limit_bytes, excluded=excluded)

    async def claim_new(self, *, limit: int, limit_bytes: int, excluded: Sequence[str]) -> Batch | None:
        """Claim messages that were inserted since the crowd was noticed. If not all fit, skip the rest, which the main stream finds."""
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
