"""Where batches come from: streams, waiting messages, suspects and lanes, each looked at when it is worth a statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from relay.claims.frontier import Frontier
from relay.claims.lanes import Lanes, LaneStore
from relay.claims.limits import Limits, alike
from relay.claims.share import Share
from relay.claims.source import FIRST_GAP, Source
from relay.claims.streams import Streams
from relay.message import Batch, Outcome, Portion, Position
from relay.ports import Due, Seen

SUSPECTS = 100
"""Messages that may go together after their first lost lock; enough to clear a dead relay's whole window within seconds."""

SUSPECTS_PATIENCE = 1.0
"""Seconds after which the next group goes although one of the last is not through, such as one that a silent queue keeps."""

ALONE_PATIENCE = 2.0
"""Seconds after which others follow one that goes alone and is not through; had it killed the relay, nobody would be here to wait."""
FIRST_AGAIN = 2


class IntakeStore(LaneStore, Protocol):
    """What the sources ask of the database."""

    async def look(self, *, fresh: Frontier, apart: Sequence[str], held: Sequence[str], lanes: Collection[int], ordered: Frontier) -> Seen:
        """Say in one statement where something may be due; locks nothing.

        Raises:
            StoreError: the database did not answer.
        """


class Intake:
    """Claims from each source in turn; a full source cannot starve another."""

    def __init__(
        self, *, store: IntakeStore, poll_interval: float, share: Share | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._clock = clock
        self.limits = Limits(clock)
        self.streams = Streams(store, share, self.limits)
        self.lanes = Lanes(store, limits=self.limits, clock=clock)
        self._suspects: dict[str, str] = {}
        """Suspects in flight, by id, and their exchanges."""
        self._last_suspects: set[str] = set()
        """Those of the last group that are in flight: whoever went before has had its time."""
        self._suspects_until = 0.0
        self._fresh = Source("streams", self._claim_streams)
        self._ordered = Source("lanes", self._claim_lanes)
        self._limited = Source("limited", self._claim_limited)
        self._limited_low = [
            Source("limited_waiting", self._claim_limited_waiting),
            Source("limited_suspect", self._claim_limited_suspect),
        ]
        self._turns = [
            self._fresh,
            self._ordered,
            Source("waiting", self._claim_waiting),
            Source("suspect", self._claim_suspect),
            Source("lanes_waiting", self._claim_lanes_waiting),
            self._limited,
            *self._limited_low,
        ]
        self._looked_for = [source for source in self._turns if source is not self._limited]
        """What a look stands for: not limited exchanges that stand apart, which have times of their own."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch, or None when no source has anything due; see `relay.ports.Intake`."""
        if self._rests():
            await self._look()
        for source in self._turns:
            if source.look_at > self._clock():
                continue
            batch = await source.claim(room, room_bytes)
            if batch or not self._goes_on(source):
                source.came_up(batch, self._clock(), self._poll_interval)
            self._mind(source, batch)
            if batch:
                self.streams.took(batch)
                self.limits.took(batch)
                self._to_the_end(source)
                return batch
        return None

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of claims: the suspect is through, keys have come free."""
        if self._suspects and not self._suspects.keys().isdisjoint(claim.id for claim in portion.claims):
            for claim in portion.claims:
                self._suspects.pop(claim.id, None)
                self._last_suspects.discard(claim.id)
            for name in ("suspect", "limited_suspect"):
                self._turn_of(name).hint()
        if self.lanes.settled(portion, outcomes):
            self._ordered.hint()
        if self.streams.starved:
            self._fresh.hint()

    def hint(self) -> None:
        """Messages were inserted: look at fresh ones at once."""
        self.streams.hint()
        self.lanes.hint()
        for source in (self._fresh, self._ordered, self._limited):
            source.hint()

    def hint_waiting(self) -> None:
        """Messages came back to the queue: look at the waiting ones at once."""
        for name in ("waiting", "suspect", "lanes_waiting", "limited_waiting", "limited_suspect"):
            self._turn_of(name).hint()

    def hold(self, exchanges: Collection[str]) -> None:
        """Hold exactly these exchanges; what was let go is looked for at once."""
        # What is let go again is looked for anew.
        self.lanes.aside.forget(exchanges)
        if self.streams.hold(exchanges):
            self.lanes.rediscover()
            self.hint()
            self.hint_waiting()

    def limit(self, figures: Mapping[str, float], relays: int) -> None:
        """Hold exactly these limits, messages a second by exchange, of which each of so many relays has its part."""
        if self.limits.set(figures, relays):
            self.hint()
            self.hint_waiting()

    @property
    def behind(self) -> list[str]:
        """Exchanges of which messages wait for their limits, sorted."""
        return sorted({*self.streams.behind, *self.lanes.aside.exchanges, *(name for source in self._limited_low for name in source.left)})

    def patrol(self) -> None:
        """Begin a look at every key of the lanes, if it is time for one."""
        self.lanes.patrol()
        self._ordered.hint()

    async def keep_lanes(self) -> None:
        """Keep the lanes; what stands in new ones is looked for at once."""
        if await self.lanes.keep():
            self.hint()
            self.hint_waiting()

    async def reject_unprintable(self) -> None:
        """See `relay.ports.Intake`."""
        await self._store.reject_unprintable()

    def until_next_look(self) -> float:
        """Seconds until a source is due, at least 0."""
        return max(0.0, min(source.look_at for source in self._turns) - self._clock())

    def reset(self) -> None:
        """The database connection is new: frontiers and lanes begin again."""
        self.streams.reset()
        self.lanes.reset()
        self._suspects.clear()
        self._last_suspects.clear()
        self.hint()
        self.hint_waiting()

    @property
    def low(self) -> Position:
        """The lowest position at which a stream may claim as long as none is let go; a claim below tells the database itself."""
        return self.streams.low_going

    async def _look(self) -> None:
        """One cheap look instead of one for each source; only those with something to find are asked."""
        streams, lanes = self.streams, self.lanes
        seen = await self._store.look(fresh=streams.main, apart=streams.apart, held=streams.held, lanes=lanes.owned, ordered=lanes.frontier)
        # While exchanges are apart the main stream must go on over their messages, else each look would go further than the one before.
        fresh = seen.fresh or bool(streams.apart)
        for source in self._looked_for:
            found = fresh if source is self._fresh else seen.ordered if source is self._ordered else seen.waiting
            source.look_at = 0.0 if found else self._clock() + self._poll_interval
        self._mind_limit(self._ordered, self.limits.until(lanes.aside.exchanges))

    def _rests(self) -> bool:
        """Everything came up empty so often that one look stands for all, and it is time for that."""
        if not all(source.rests(self._poll_interval) for source in self._looked_for):
            return False
        if self.limits.until(self.lanes.aside.exchanges) == 0.0 or any(map(self._goes_on, self._looked_for)):
            # Keys that a limit lets go stand below the lanes' head, where no look sees them, and so does the rest of a look bit by bit.
            return False
        return min(source.look_at for source in self._looked_for) <= self._clock()

    def _mind(self, source: Source, batch: Batch | None) -> None:
        """A look that found nothing may have left out a flood: others must not wait longer for that."""
        if source is self._fresh and self.streams.starved and not (batch or self.streams.unfinished):
            source.look_at, source.gap = self._clock() + FIRST_GAP, FIRST_GAP
        self._mind_limits()

    def _goes_on(self, source: Source) -> bool:
        """Whether its look is not at its end: it is due still, and how long it rests between two looks is not touched."""
        if source in {self._fresh, self._limited}:
            return self.streams.unfinished
        return source.name.startswith("lanes") and self.lanes.unfinished

    def _mind_limits(self) -> None:
        """What waits for its limit is looked for as soon as that lets it go."""
        if not (self.limits.names or self.lanes.aside.exchanges):
            return
        waits = [(self._limited, self.streams.until_limited()), (self._ordered, self.limits.until(self.lanes.aside.exchanges))]
        waits += [(source, self.limits.until(source.left | source.unseen)) for source in self._limited_low]
        for source, wait in waits:
            self._mind_limit(source, wait)

    def _mind_limit(self, source: Source, wait: float | None) -> None:
        if wait is not None:
            source.look_at = min(source.look_at, self._clock() + max(wait, FIRST_GAP))

    def _to_the_end(self, source: Source) -> None:
        self._turns.remove(source)
        self._turns.append(source)

    def _turn_of(self, name: str) -> Source:
        return next(source for source in self._turns if source.name == name)

    async def _claim_streams(self, room: int, room_bytes: int) -> Batch | None:
        return await self.streams.claim(limit=room, limit_bytes=room_bytes)

    async def _claim_lanes(self, room: int, room_bytes: int) -> Batch | None:
        return await self.lanes.claim(limit=room, limit_bytes=room_bytes, held=self.streams.held)

    async def _claim_lanes_waiting(self, room: int, room_bytes: int) -> Batch | None:
        return await self.lanes.claim_waiting(limit=room, limit_bytes=room_bytes, held=self.streams.held)

    async def _claim_limited(self, room: int, room_bytes: int) -> Batch | None:
        return await self.streams.claim_limited(limit=room, limit_bytes=room_bytes)

    async def _claim_waiting(self, room: int, room_bytes: int) -> Batch | None:
        where = {"except": self._held_or_limited(), "only": None}
        return (await self._store.claim_low(Due.WAITING, limit=room, limit_bytes=room_bytes, where=where)).batch

    async def _claim_limited_waiting(self, room: int, room_bytes: int) -> Batch | None:
        return await self._claim_limited_low(self._limited_low[0], Due.WAITING, room, room_bytes, {})

    async def _claim_suspect(self, room: int, room_bytes: int) -> Batch | None:
        if self._suspects_are_waited_for():
            return None
        # Those of an exchange that does not confirm come last: one after the other they would keep all others.
        slow = {*self._suspects.values()} - {*self.streams.held}
        batch = await self._next_suspects(room, room_bytes, slow) if slow else None
        return self._sent_suspects(batch or await self._next_suspects(room, room_bytes, ()))

    async def _claim_limited_suspect(self, room: int, room_bytes: int) -> Batch | None:
        if self._suspects_are_waited_for():
            return None
        source, where = self._limited_low[1], self.lanes.fence
        return self._sent_suspects(await self._claim_limited_low(source, Due.SUSPECT, min(room, SUSPECTS), room_bytes, where))

    async def _next_suspects(self, room: int, room_bytes: int, left_out: Collection[str]) -> Batch | None:
        where = {"except": sorted({*self._held_or_limited(), *left_out}), "only": None, **self.lanes.fence}
        return (await self._store.claim_low(Due.SUSPECT, limit=min(room, SUSPECTS), limit_bytes=room_bytes, where=where)).batch

    def _sent_suspects(self, batch: Batch | None) -> Batch | None:
        """Remember who is on the way."""
        if batch:
            self.lanes.took(batch)
            self._suspects.update((claim.id, claim.exchange) for claim in batch.claims)
            self._last_suspects = {claim.id for claim in batch.claims}
            # The claim counts, so a first lost lock makes two attempts.
            alone = batch.claims[0].attempts > FIRST_AGAIN
            self._suspects_until = self._clock() + (ALONE_PATIENCE if alone else SUSPECTS_PATIENCE)
        return batch

    def _suspects_are_waited_for(self) -> bool:
        """Those of the last group have their time to be through first."""
        return bool(self._last_suspects) and self._clock() < self._suspects_until

    def _held_or_limited(self) -> list[str]:
        return sorted({*self.streams.held, *self.limits.names})

    async def _claim_limited_low(self, source: Source, due: Due, room: int, room_bytes: int, where: Mapping[str, object]) -> Batch | None:
        """What waits of limited exchanges, no more than each of them may have, whichever it is of."""
        held = frozenset(self.streams.held)
        allowances = self.limits.open(held)
        source.unseen = frozenset(self.limits.names) - allowances.keys() - held
        source.left &= source.unseen
        for going in alike(allowances, source.last):
            where = {**where, "except": [], "only": sorted(going)}
            claimed = await self._store.claim_low(due, limit=min(room, *going.values()), limit_bytes=room_bytes, where=where)
            if not claimed.exhausted:
                source.left |= going.keys()
            if claimed.batch:
                source.last = min(going.values())
                return claimed.batch
        return None
