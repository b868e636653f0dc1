"""Messages in order per key: which lanes this relay owns, which keys to search, and which of their heads to claim.

A key's head is its lowest message in any state; only the head may be in flight. The relay searches for a key's head after an insert with
this key, after the head was settled, and after the head's wait. It also does so when the scrub finds a message of the key. So a parked key
costs its lane nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from relay.claims.backlog import Backlog
from relay.claims.cursor import Cursor, Snapshot, cut_at
from relay.claims.key_bounds import KeyBound, KeyBounds
from relay.claims.key_queue import KeyQueue
from relay.claims.rate_limits import RateLimits
from relay.message import Archive, Batch, Outcome, Portion, Position, Range
from relay.ports import At, ClaimStore, Listed, ScanFinding

KEYS_PER_CLAIM = 500
PAGE = 5000
"""Most messages that one listing of keys scans, in a few milliseconds."""
ROUNDS = 2
"""How many searches of one turn may find only blocked keys; then other sources get their turn."""
LIST_EVERY = 4
"""Claims after which new keys are listed even if other keys wait: a backlog of some keys must not delay new keys."""
LIST_ALWAYS = 24
"""Claims after which new keys are listed however many keys wait: by then more keys have had their turn than one page can list."""


class LaneStore(ClaimStore, Protocol):
    """A claim store that also keeps lanes; each call is one statement and may raise StoreError."""

    async def keep_lanes(self) -> dict[int, int]:
        """Yield or acquire lanes up to this relay's fair share; return the epochs of the lanes that the relay owns now.

        Raises:
            StoreError: the relay may not own these lanes any more.
        """

    async def reject_unprintable(self) -> None:
        """Archive the messages that no claim can return."""

    async def list_keys(self, *, lanes: Sequence[int], ranges: Sequence[Range], walk: int) -> Listed:
        """Keys of fresh messages in these ranges and lanes, from a scan of at most `walk` messages."""

    async def find_heads(
        self, keys: Sequence[str], bounds: Sequence[KeyBound], *, running: Sequence[int], paused: Sequence[str]
    ) -> tuple[str, dict[str, ScanFinding]]:
        """The snapshot, and the heads of these keys, searched from their bounds on. The kind of a head is key, suspect or blocked.

        A transaction in `running`, which was running at the last search, is late for each bound above it.
        """


class Lanes:
    """The ordered messages of the lanes that this relay owns.

    Args:
        store: where messages are claimed.
        limits: say how many messages of an exchange may be claimed now.
        suspects: gets the heads whose lock has expired before.

    """

    def __init__(self, store: LaneStore, *, limits: RateLimits, suspects: Backlog) -> None:
        self._store = store
        self._limits = limits
        self._suspects = suspects
        self._owned: dict[int, int] = {}
        self.cursor = Cursor()
        self._bounds = KeyBounds()
        self.keys = KeyQueue()
        self.backlog = Backlog(limits)
        """Heads that wait for the limit of their exchange."""
        self._claims = 0
        self.unfinished = False
        """Whether the last claim found nothing, but stopped before the end."""

    @property
    def owned(self) -> list[int]:
        """The lanes that this relay owns."""
        return list(self._owned)

    def fence(self, findings: Iterable[ScanFinding]) -> dict[int, int]:
        """This relay's lanes among the lanes of these messages, with the epochs that the claim names and the database checks."""
        lanes = {one.lane for one in findings}
        return {lane: epoch for lane, epoch in sorted(self._owned.items()) if lane in lanes}

    def took(self, batch: Batch) -> None:
        """Note the keys of a batch, whatever source claimed it: one message of each key is in flight."""
        for claim in batch.claims:
            if claim.ordering_key is not None:
                self.keys.took(claim.ordering_key)

    def found(self, finding: ScanFinding) -> None:
        """Note a message that a scan found, and that can be claimed if it is the head of its key."""
        if finding.key is not None and finding.lane is not None:
            self._ask(finding.key, finding.lane, finding.position, found=True)

    def _ask(self, key: str, lane: int, position: Position, *, found: bool) -> None:
        if lane in self._owned:
            self._bounds.seen(key, position)
            self.keys.ask({key: lane}, found=found)

    async def keep(self) -> bool:
        """Yield or acquire lanes; return whether the lanes have changed. The scrub finds the keys of new lanes."""
        kept = await self._store.keep_lanes()
        if kept == self._owned:
            return False
        self._owned = kept
        self.keys.keep(kept.__contains__)
        self._bounds.forget()
        return True

    def reset(self) -> None:
        """Forget lanes, cursor and bounds: the connection is new. Messages in flight stay in flight."""
        self._owned = {}
        self.keys.clear()
        self.backlog.clear()
        self._bounds.forget()
        self.cursor = Cursor()

    async def claim(self, *, limit: int, limit_bytes: int, paused: list[str]) -> Batch | None:
        """Claim heads of keys that became free or were listed, in the order of the key queue."""
        self.unfinished = False
        if not self._owned:
            return None
        self._admit(paused)
        for _ in range(ROUNDS):
            more = await self._list() if self._worth_listing() else bool(self.keys)
            if ready := await self._find(limit, paused):
                return await self._claim_ready(ready, limit, limit_bytes)
            if not (more or self.keys):
                return None
        self.unfinished = True
        return None

    def _admit(self, paused: Sequence[str]) -> None:
        """Search again for the heads that a limit now admits: a lower message may have appeared meanwhile."""
        admitted = self.backlog.next(len(self.backlog), paused)
        self.backlog.drop(admitted)
        for finding in admitted:
            if finding.key is not None and finding.lane is not None:
                self._ask(finding.key, finding.lane, finding.position, found=False)

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> bool:
        """Note the keys whose heads left the queue; return whether there were such keys.

        If another relay owns the lane now, its scrub finds the next message of the key.
        """
        freed: dict[str, int] = {}
        again: dict[str, int] = {}
        for claim, outcome in zip(portion.claims, outcomes, strict=True):
            key, lane = claim.ordering_key, claim.lane
            if key is not None and lane is not None and (self.keys.settled(key) or isinstance(outcome, Archive)):
                (freed if isinstance(outcome, Archive) else again)[key] = lane
        self.keys.ask({key: lane for key, lane in freed.items() if lane in self._owned})
        self.keys.ask({key: lane for key, lane in again.items() if lane in self._owned}, found=True)
        return bool(freed or again)

    def _worth_listing(self) -> bool:
        self._claims += 1
        return not self.keys or self._claims % (LIST_ALWAYS if self.keys.many_new else LIST_EVERY) == 0

    async def _list(self) -> bool:
        """Add the keys of new messages to the key queue; return whether there are more new messages."""
        cursor = self.cursor
        ranges = cursor.ranges()
        listed = await self._store.list_keys(lanes=self.owned, ranges=ranges, walk=PAGE)
        reached = [None] * len(ranges) if listed.last is None else cut_at(ranges, listed.last)
        cursor.advance(ranges, reached, Snapshot.parse(listed.snapshot))
        for key, (lane, position) in listed.keys.items():
            self._ask(key, lane, position, found=False)
        return listed.last is not None

    async def _find(self, limit: int, paused: Sequence[str]) -> dict[str, ScanFinding]:
        """Search for the heads of the first waiting keys; return the heads to claim now. The other keys are removed from the key queue."""
        keys = self.keys.first(min(limit, KEYS_PER_CLAIM))
        if not keys:
            return {}
        snapshot, heads = await self._store.find_heads(keys, self._bounds.of(keys), running=self._bounds.running, paused=paused)
        self._bounds.learn(keys, heads, Snapshot.parse(snapshot))
        mine = [head for head in heads.items() if head[1].lane in self._owned]
        admitted = dict(self._limits.admit((head for head in mine if head[1].kind == "key"), lambda head: head[1].exchange))
        self.keys.drop(key for key in keys if key not in admitted)
        for key, head in mine:
            if head.kind == "suspect":
                self._suspects.put(head)
            elif head.kind == "key" and key not in admitted:
                self.backlog.put(head)
        return admitted

    async def _claim_ready(self, ready: Mapping[str, ScanFinding], limit: int, limit_bytes: int) -> Batch | None:
        """Claim these heads. Heads that do not fit are tried again; while few keys wait, so are heads that other sessions have locked."""
        wanted = At([head.position for head in ready.values()], "ordered", self.fence(ready.values()))
        claimed = await self._store.claim(wanted, limit=limit, limit_bytes=limit_bytes)
        if claimed.batch:
            self.took(claimed.batch)
        self.keys.drop(key for key, head in ready.items() if head.position in claimed.refused)
        if claimed.full or len(self.keys) <= KEYS_PER_CLAIM:
            self.keys.put_behind(ready)
        else:
            # An application may lock very many heads, which must not use up the turns and room of other keys. The scrub finds them again.
            self.keys.drop(ready)
            self.unfinished = claimed.batch is None
        return claimed.batch
