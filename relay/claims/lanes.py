"""Messages in order per key: which lanes are ours, which keys to ask for, and which of their heads to claim.

A key's head is its lowest message in any state; only the head may be in flight. Keys are listed once, above the lanes' head, and
asked for; a key is asked for again when its head was settled, so a parked key costs its lane nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from relay.claims.aside import Aside
from relay.claims.asked import Asked
from relay.claims.bounds import Bound, Bounds, Head
from relay.claims.frontier import Frontier, Snapshot
from relay.claims.limits import Limits
from relay.literals import literal
from relay.message import START, Archive, Batch, Outcome, Portion, Position
from relay.ports import ClaimStore, Due, Listed, Place

LANES = 64
"""Fixed in the database by `queue_message_lane_of`."""
KEYS_PER_CLAIM = 500
PAGE = 5000
"""Messages whose keys are listed at once; a few milliseconds."""
MOST_ASKED = 2 * PAGE
LIST_AGAIN = 0.1
"""Seconds between two lists of keys where all that is known waits for limits."""
ROUNDS = 2
"""Looks at keys that turned out to be blocked before other sources get their turn."""
LIST_EVERY = 4
"""Claims after which keys are listed although others can be asked for: a backlog of some keys must not keep new ones waiting."""
LEFT = Place("-infinity", 0)
PATROL_SHARE = 0.001
"""Most of the time that a look at everything may take; when one took long the next one comes later."""


class LaneStore(ClaimStore, Protocol):
    """A claim store that also keeps lanes; each call is one statement and may raise StoreError."""

    async def keep_lanes(self) -> dict[int, int]:
        """Renew, give up and take lanes; return the epochs of those that are ours now.

        Raises:
            StoreError: the lanes are not certain any more.
        """

    async def reject_unprintable(self) -> None:
        """Archive the messages that no claim can hand out."""

    async def wake_successors(self, keys: Sequence[str]) -> None:
        """Make the heads of these keys due, for whoever owns their lanes."""

    async def list_keys(self, *, lanes: Collection[int], head: Position, pending: Collection[int], most: int) -> Listed:
        """Keys of ready messages above `head` and in the pending transactions."""

    async def list_waiting_keys(
        self, *, lanes: Collection[int], held: Sequence[str], after: Place, most: int
    ) -> tuple[list[str], Place | None]:
        """Keys of messages whose wait is over, the next ones after a place, and where they go on, None at the end."""

    async def find_heads(self, keys: Sequence[str], bounds: Sequence[Bound], *, held: Sequence[str]) -> tuple[str, dict[str, Head]]:
        """The heads of these keys by their bounds, and the snapshot that shows them."""


def lane_of(ordering_key: str) -> int:
    """The lane of a key, as `queue_message_lane_of` computes it."""
    return int(hashlib.md5(ordering_key.encode(), usedforsecurity=False).hexdigest()[:8], 16) & (LANES - 1)


class Lanes:
    """The ordered messages of the lanes that this relay owns."""

    def __init__(self, store: LaneStore, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._limits = limits or Limits()
        self._clock = clock
        self._owned: dict[int, int] = {}
        self.frontier = Frontier()
        self._bounds = Bounds()
        self._asked = Asked()
        self.aside = Aside(self._limits)
        self._list_at = 0.0
        self._locked: dict[str, None] = {}
        """Keys whose head somebody else holds."""
        self._strange: dict[str, None] = {}
        self._began_again = False
        """What was held when the claim that is under way began may have been let go since."""
        self._claims = 0
        self._after = LEFT
        self._patrol: Position | None = None
        self._patrol_cost = 0.0
        self._patrol_at = 0.0
        self.unfinished = False
        """The last claim found nothing but has not come to the end."""

    @property
    def owned(self) -> list[int]:
        """The lanes that this relay owns."""
        return list(self._owned)

    @property
    def fence(self) -> dict[str, list[int]]:
        """The owned lanes and their epochs, as a claim names them and the database checks them."""
        return {"lanes": list(self._owned), "epochs": list(self._owned.values())}

    def took(self, batch: Batch) -> None:
        """Note what was claimed, here or elsewhere: one message of a key is in flight."""
        for claim in batch.claims:
            if claim.ordering_key is not None:
                self._asked.took(claim.ordering_key)
                self.aside.took(claim.ordering_key)

    async def keep(self) -> bool:
        """Renew the lanes' leases and take or give up lanes. True if there is something to look at: new lanes, or locks of others."""
        kept = await self._store.keep_lanes()
        changed = kept != self._owned
        self._owned = kept
        if changed:
            self._asked.keep(lambda key: lane_of(key) in kept)
            self.aside.clear()
            self._bounds.forget()
            self.rediscover()
        # Whoever holds those heads may leave without a word: the owner of before, or a program that follows the convention by hand.
        locked, self._locked = self._locked, {}
        self._asked.ask(locked)
        return changed or bool(locked)

    def rediscover(self) -> None:
        """Look at the lanes from the left at once: after a change of lanes or a resumed exchange."""
        self.frontier, self._began_again = Frontier(), True

    def patrol(self) -> None:
        """Look at the lanes from the left, bit by bit: for keys that nobody has told of, such as after a DELETE by hand."""
        if self._patrol is None and self._clock() >= self._patrol_at:
            self._patrol, self._patrol_cost = START, 0.0

    def hint(self) -> None:
        """Messages may have been inserted: keys are worth a list at once."""
        self._list_at = 0.0

    def reset(self) -> None:
        """Forget lanes, frontier and bounds: the connection is new. What is in flight stays so."""
        self._owned = {}
        self._asked.clear()
        self.aside.clear()
        self._locked.clear()
        self._bounds.forget()
        self._patrol = None
        self.rediscover()

    async def claim(self, *, limit: int, limit_bytes: int, held: list[str]) -> Batch | None:
        """Heads of the keys that came free or were listed, oldest request first."""
        self.unfinished = self._began_again = False
        if self._strange:
            keys = list(self._strange)
            await self._store.wake_successors(keys)
            for key in keys:
                self._strange.pop(key, None)
        if not self._owned:
            return None
        self._go_on()
        for _ in range(ROUNDS):
            if self._began_again:
                # Keys that are listed from the left now would be dropped under an exchange that is held no more.
                break
            more = await self._list() if self._worth_listing() else bool(self._asked)
            if ready := await self._find(limit, held):
                return await self._claim_ready(ready, limit, limit_bytes)
            if not (more or self._asked):
                return None
        self.unfinished = True
        return None

    async def claim_waiting(self, *, limit: int, limit_bytes: int, held: list[str]) -> Batch | None:
        """Heads whose wait is over."""
        self.unfinished = False
        if not self._owned:
            return None
        for _ in range(ROUNDS):
            if self._asked.passed:
                await self._list_waiting(held)
            if ready := await self._find(limit, held):
                return await self._claim_ready(ready, limit, limit_bytes)
            if self._asked.passed and self._after is LEFT:
                return None
        self.unfinished = True
        return None

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> bool:
        """Note the keys whose head left the queue; return whether there were any."""
        freed: dict[str, None] = {}
        for claim, outcome in zip(portion.claims, outcomes, strict=True):
            key = claim.ordering_key
            if key is not None and (self._asked.settled(key) or isinstance(outcome, Archive)):
                freed[key] = None
        ours = {key: None for key in freed if lane_of(key) in self._owned}
        self._asked.ask(ours)
        self._strange.update((key, None) for key in freed if key not in ours)
        return bool(freed)

    def _worth_listing(self) -> bool:
        self._claims += 1
        if self.aside.exchanges and self._clock() < self._list_at:
            return False
        return not self._asked or (self._claims % LIST_EVERY == 0 and len(self._asked) < MOST_ASKED)

    async def _list(self) -> bool:
        """Ask for the keys of messages that are new; True if there are more."""
        frontier, ripe, owned = self.frontier, frozenset(self.frontier.ripe), self._owned
        listed = await self._store.list_keys(lanes=self._owned, head=frontier.head, pending=ripe, most=PAGE)
        snapshot = Snapshot.parse(listed.snapshot)
        frontier.passed(listed.last, snapshot, exhausted=not listed.more)
        frontier.probed(ripe, snapshot, exhausted=not listed.more_late)
        self._ask(listed.keys, owned)
        self._list_at = self._clock() + LIST_AGAIN
        return listed.more or bool(frontier.ripe - ripe) or await self._patrol_on()

    async def _patrol_on(self) -> bool:
        """Ask for the keys of the next page of the look at everything; True if that is not at its end."""
        if self._patrol is None:
            return False
        began, owned = self._clock(), self._owned
        listed = await self._store.list_keys(lanes=owned, head=self._patrol, pending=(), most=PAGE)
        self._ask(listed.keys, owned)
        self._patrol = listed.last if listed.more else None
        self._patrol_cost += self._clock() - began
        self._patrol_at = self._clock() + self._patrol_cost / PATROL_SHARE
        return self._patrol is not None

    async def _list_waiting(self, held: list[str]) -> None:
        """Ask for the keys of the next page of those whose wait is over."""
        owned = self._owned
        keys, after = await self._store.list_waiting_keys(lanes=owned, held=held, after=self._after, most=PAGE)
        self._after = after or LEFT
        # Of many that wait for limits none is looked at each time; another head under one of them is found in its turn.
        self._ask(keys if len(keys) < KEYS_PER_CLAIM else [key for key in keys if key not in self.aside], owned)
        self._asked.mark()

    def _ask(self, keys: Sequence[str], owned: Mapping[int, int]) -> None:
        """Ask for keys that were listed of these lanes, some of which may have been given up meanwhile."""
        self._asked.ask(keys if self._owned is owned else [key for key in keys if lane_of(key) in self._owned])

    def _go_on(self) -> None:
        """Ask for keys that wait for limits, as many as these let go now."""
        keys, more = self.aside.let_go()
        self._asked.ask(keys)
        if more:
            self.frontier = Frontier()

    def _within_limits(self, heads: Mapping[str, Head]) -> dict[str, Position]:
        """Those of the ready heads that limits let go now; the keys of the others wait for that."""
        found: dict[str, Position] = {}
        left: dict[str, int | None] = {}
        for key, head in heads.items():
            allowance = left.setdefault(head.exchange, self._limits.allowance(head.exchange))
            if allowance == 0:
                self._asked.drop([key])
                self.aside.put(key, head.exchange)
                continue
            self.aside.took(key)
            found[key] = head.position
            left[head.exchange] = None if allowance is None else allowance - 1
        return found

    async def _find(self, limit: int, held: Sequence[str]) -> dict[str, Position]:
        """Look for the heads of the keys asked for first; return those that are ready. The other keys are not asked for any more."""
        keys, owned = self._asked.first(min(limit, KEYS_PER_CLAIM)), self._owned
        if not keys:
            return {}
        snapshot, heads = await self._store.find_heads(keys, self._bounds.of(keys), held=held)
        self._bounds.learn(keys, heads, Snapshot.parse(snapshot))
        if self._owned is not owned:
            heads = {key: head for key, head in heads.items() if lane_of(key) in self._owned}
        self._asked.drop(key for key in keys if key not in heads or not heads[key].ready)
        self._locked.update(dict.fromkeys(key for key, head in heads.items() if head.locked))
        return self._within_limits({key: head for key, head in heads.items() if head.ready})

    async def _claim_ready(self, ready: Mapping[str, Position], limit: int, limit_bytes: int) -> Batch | None:
        """Claim what was found; what has changed since, or does not fit, is asked for again."""
        lanes = sorted({lane_of(key) for key in ready} & self._owned.keys())
        where = {
            "lanes": lanes, "epochs": [self._owned[lane] for lane in lanes],
            "xids": literal(position.xid for position in ready.values()), "seqs": literal(position.seq for position in ready.values()),
        }  # fmt: skip
        batch = (await self._store.claim_low(Due.ORDERED, limit=limit, limit_bytes=limit_bytes, where=where)).batch
        if batch:
            self.took(batch)
        # To the end, so that heads which an application keeps locked hold up no other key.
        self._asked.put_behind(ready)
        return batch
