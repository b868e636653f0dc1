"""One stream of fresh messages without a key: a filter over the queue, and the place where the next claim continues."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from relay.claims.cursor import Cursor, Snapshot, cut_at
from relay.message import Batch, Position, Range
from relay.ports import Claimed, ClaimStore, Fresh

WALK = 10_000
"""Most messages that one claim scans. Such a scan takes some ten milliseconds, and all other claims wait meanwhile."""


class Stream:
    """One filter over the queue with its own cursor.

    Args:
        store: where messages are claimed.
        only: the exchanges whose messages the stream claims; None for all exchanges that are not excluded.
        cursor: where the stream begins.

    """

    def __init__(self, store: ClaimStore, only: Collection[str] | None = None, cursor: Cursor | None = None) -> None:
        self._store = store
        self.only = None if only is None else set(only)
        self.cursor = cursor or Cursor()
        self.cut = False
        """Whether the last claim stopped before the end."""
        self.full = False
        """Whether the last claim stopped at a limit on messages or bytes."""
        self.look_at = 0.0
        """For a limited exchange whose last claim found nothing: when the stream claims again."""
        self._seen = Snapshot(0, frozenset())

    def end(self) -> Cursor:
        """A cursor after everything that the last claim could see."""
        return Cursor.behind(self._seen)

    def restart(self) -> None:
        """Begin again from the left; a claim under way moves the previous cursor."""
        self.cursor = Cursor()
        self.look_at = 0.0

    async def claim(self, *, limit: int, limit_bytes: int, excluded: Sequence[str] = ()) -> Batch | None:
        """Claim messages below the head that were committed late, and messages above the head."""
        cursor = self.cursor
        ranges = cursor.ranges()
        # If the messages to claim are close together, a short scan is enough. If the last claim found too few, other messages lie between.
        walk = WALK if self.cut and not self.full else min(2 * limit, WALK)
        self.cut = self.full = False
        wanted = Fresh(ranges, walk, list(excluded), None if self.only is None else list(self.only))
        claimed = await self._store.claim(wanted, limit=limit, limit_bytes=limit_bytes)
        self._seen = Snapshot.parse(claimed.snapshot)
        cursor.advance(ranges, _reached(claimed, ranges), self._seen)
        self.full = claimed.full
        self.cut = claimed.full or any(claimed.bounds)
        return claimed.batch


def _reached(claimed: Claimed, ranges: Sequence[Range]) -> list[Position | None]:
    """How far a claim read in each range: to the claim's last message if the claim was full, otherwise to the range's bound."""
    bounds = [bound and Position(bound.xid, bound.seq - 1) for bound in claimed.bounds]
    if not claimed.full:
        return bounds
    if claimed.last is None:
        return []
    ended = cut_at(ranges, claimed.last)
    return [bound or end for bound, end in zip(bounds, ended[:-1], strict=False)] + ended[-1:]
