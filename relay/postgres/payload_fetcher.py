"""Payloads and options too large to travel with their claim: fetched once the lock is committed, so that one too large for memory counts.

They come piece by piece, and between two of them other statements that wait for the connection have their turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from relay.errors import StoreError
from relay.message import Claim, TruncatedPayload, memory_of

LARGE = 4 << 20
"""Bytes that a message may take, at the most, for its payload to travel with the claim. An answer that the relay does not survive undoes
the claim: the lock does not stand, the attempt does not count, and the same claim comes again for ever."""
NO_MEMORY = "The relay has no memory for a payload: give it more, or lower RELAY_WINDOW_BYTES and, by `relay config set`, max_body_bytes."
FIRST, LEAST, GROWTH = 1 << 18, 1 << 16, 4
"""Bytes of the first piece and of the smallest, and how many times as long as one before the next may be."""
GOAL, SHARE = 1.0, 0.1
"""Seconds that a piece may be on its way, and which share of the lock time: renewals and heartbeats wait for it."""
MOST_EXPANSION = 1 << 12
"""Bytes of text for each that is stored, at the most: an INSERT allows 32, and compression saves up to a hundred times as much."""
USUAL = 32 << 20
"""Bytes that a claim is taken to bring, at the most, when nothing but the window bounded it and it did not arrive in time."""


class Piece(NamedTuple):
    """A part of a payload and of the options behind it."""

    octets: bytes
    length: int
    """Bytes of all of the payload."""
    served: float
    """Seconds that the server needed."""
    options: int | None
    """Bytes of the message's options, which follow the payload: as much of them as shows that they are too long. None: it has none."""


Read = Callable[[Claim, int, int], Awaitable[Piece | None]]
Renew = Callable[[Sequence[Claim]], Awaitable[bool]]


class Pace:
    """How much is asked for at once, by how long it took before."""

    def __init__(self) -> None:
        self.piece = FIRST
        """Bytes of the next piece of a payload."""
        self._most: int | None = None
        """Bytes of a claim since one did not arrive in time."""
        self._widest = 0
        """The most bytes that a claim was ever wanted to bring: with nothing in flight that is all of the window."""
        self._expansion = 1
        """How many bytes of memory a claim is expected to take for each that the database has stored."""

    def came(self, size: int, seconds: float, *, served: float, goal: float) -> None:
        """Learn from a piece: the server needs `served` seconds for each, however long it is, since it may print all of the content."""
        rate = size / max(seconds - served, 0.001)
        self.piece = min(max(int(rate * max(goal, served)), LEAST), self.piece * GROWTH)

    def of_claim(self, wanted: int) -> int:
        """Bytes that a claim may bring where so many are wanted."""
        self._widest = max(self._widest, wanted)
        return max(self._bounded(wanted) // self._expansion, 1)

    @property
    def large(self) -> int:
        """Bytes that a message may take for its payload to travel with the claim."""
        return self._bounded(LARGE)

    def overfull(self) -> None:
        """Learn from a claim that took more memory than there was, so that the database printed some in vain."""
        self._expansion = min(self._expansion * GROWTH, MOST_EXPANSION)

    def unanswered(self) -> None:
        """Learn from a claim that got no answer at all: whatever kept it, one more like it keeps everybody as long."""
        self._most = LEAST

    def claimed(self, arrived: float, whole: float, *, half: float, cut: bool, room: int, size: int) -> None:
        """Learn from a claim that brought something.

        Args:
            arrived: seconds that its statement took, without those for a connection, which say nothing of what a claim may bring.
            whole: seconds until the payloads that it left behind were there too.
            half: seconds that leave too little of the lock.
            cut: more was due than it might bring; the others show nothing, as they brought less than that.
            room: bytes of the window that were free. Where they were less than a claim may bring, it was cut for them, and shows nothing.
            size: bytes of memory that it took.

        """
        if cut and GROWTH * size <= room:
            self._expansion = max(self._expansion // 2, 1)
        if arrived > half:
            self.too_slow()
        elif self._most is not None and self._most < room and cut and whole < GOAL:
            self._most = self._most * 2 if self._most < USUAL else None

    def too_slow(self) -> None:
        """Learn from one that did not arrive in time: as much would not the next time.

        It is measured by what bounded the claims before it. The room that the window just had may have been next to nothing.
        """
        self._most = max(min(self._most or USUAL, USUAL, self._widest) // GROWTH, LEAST)

    def _bounded(self, size: int) -> int:
        return size if self._most is None else min(size, self._most)


class Completed(NamedTuple):
    """What became of the claims of one statement."""

    whole: list[Claim]
    lost: list[Claim]
    """Their lock is not ours any more."""
    back: list[Claim]
    """They are to go again: there was no time for them, no room, or no way."""
    failed: Claim | None
    """The one that cannot be had, still locked."""
    failure: StoreError | None
    """Why."""


class Fetcher:
    """Puts in the payloads that were left behind by one claim.

    Args:
        read: a piece of one: from which byte, how many. None where the lock is not ours any more.
        renew: moves the locks of claims ahead; False if some of them are not ours any more.
        pace: how long pieces are.
        most: bytes that a payload may have.
        room: bytes of memory that all of them may take together. What the database says of their sizes is no bound: as text they may be
            longer.
        half: seconds after which a lock is to be renewed.
        since: monotonic seconds of the claim.
        leaving: the relay stops, and sends nothing any more.

    """

    def __init__(
        self, *, read: Read, renew: Renew, pace: Pace, most: int, room: int, half: float, since: float, leaving: Callable[[], bool]
    ) -> None:
        self._read = read
        self._renew = renew
        self._pace = pace
        self._most = most
        self._room = room
        self._half = half
        self._leaving = leaving
        self._until = self._renew_at = since + half
        self._taken_over = False
        self._locked: list[Claim] = []

    async def complete(self, claims: Sequence[Claim], left: Collection[int]) -> Completed:
        """Fetch one payload at least, however large it is and long it takes, so that the next claim comes to others.

        Further ones come while there is room and half of the lock is not over; up to the first that cannot be had.
        """
        done = Completed([], [], [], None, None)
        self._locked = [*claims]
        self._room -= memory_of([claim for index, claim in enumerate(claims) if index not in left])
        begun = False
        for index, claim in enumerate(claims):
            if index not in left:
                done.whole.append(claim)
            elif done.failure or self._in_vain or (begun and self._enough):
                done.back.append(claim)
            else:
                begun, done = True, await self._one(done, claim)
        if done.back and self._room <= 0:
            self._pace.overfull()
        self._locked = done.whole
        await self._renew_in_time()
        return done

    async def _one(self, done: Completed, claim: Claim) -> Completed:
        try:
            whole = await self._whole(claim)
        except (StoreError, MemoryError) as error:
            return done._replace(failed=claim, failure=error if isinstance(error, StoreError) else StoreError(NO_MEMORY))
        if whole is not None:
            done.whole.append(whole)
            self._room -= memory_of([whole])
        elif self._in_vain:
            done.back.append(claim)
        else:
            done.lost.append(claim)
            self._locked.remove(claim)
        return done

    async def _whole(self, claim: Claim) -> Claim | None:
        """With all of it, or what shows that it is too large; None where it is lost, or where the rest of it would come in vain."""
        pieces: list[bytes] = []
        have, whole = 0, self._most + 1
        while True:
            asked, began = min(self._pace.piece, whole - have), time.monotonic()
            answer = await self._read(claim, have + 1, asked)
            if answer is None:
                return None
            if answer.length > self._most:
                return claim._replace(payload=TruncatedPayload(answer.octets), options=None)
            pieces.append(answer.octets)
            have, whole = have + len(answer.octets), answer.length + (answer.options or 0)
            if have >= whole:
                return _joined(claim, pieces, answer)
            self._pace.came(asked, time.monotonic() - began, served=answer.served, goal=min(GOAL, self._half * SHARE))
            await self._renew_in_time()
            if self._in_vain:
                return None

    @property
    def _enough(self) -> bool:
        """What is there fills the room, or takes half of the lock."""
        return self._room <= 0 or time.monotonic() > self._until

    @property
    def _in_vain(self) -> bool:
        """Nothing of it would be sent."""
        return self._taken_over or self._leaving()

    async def _renew_in_time(self) -> None:
        """Keep all that is held, if half of the lock is over; a renewal that did not get through is tried again after the next piece."""
        if self._taken_over or not self._locked or time.monotonic() < self._renew_at:
            return
        began = time.monotonic()
        with suppress(StoreError):
            self._taken_over = not await self._renew(self._locked)
            self._renew_at = began + self._half


def _joined(claim: Claim, pieces: Sequence[bytes], last: Piece) -> Claim:
    """With payload and options, of which most messages have none."""
    octets = b"".join(pieces)
    if not last.options:
        return claim._replace(payload=octets, options=None)
    return claim._replace(payload=octets[: last.length], options=octets[last.length :])
