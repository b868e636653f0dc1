"""Payloads and options too large to come with their claim: fetched once the lock is committed, so that a failure counts as an attempt.

They come piece by piece; between two pieces, other statements that wait for the connection have their turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from relay.errors import StoreError
from relay.message import Claim, TruncatedPayload, memory_of

LARGE = 4 << 20
"""Most bytes of a message whose payload comes with the claim. If the relay does not survive the answer, the claim is rolled back:
there is no lock, the attempt does not count, and the same claim would come again for ever."""
NO_MEMORY = "The relay has no memory for a payload: give it more, or lower RELAY_WINDOW_BYTES and, by `relay config set`, max_body_bytes."
FIRST, LEAST, GROWTH = 1 << 18, 1 << 16, 4
"""Bytes of the first piece and of the smallest; the factor by which a piece may be longer than the previous one."""
GOAL, SHARE = 1.0, 0.1
"""Seconds that a piece should take, and the share of the lock time that it may take: renewals and heartbeats wait for it."""
MOST_EXPANSION = 1 << 12
"""Most bytes of text for each stored byte: an INSERT allows 32, and compression multiplies that by up to a hundred."""
USUAL = 32 << 20
"""Most bytes assumed for a claim that only the window limited and that did not arrive in time."""


class Piece(NamedTuple):
    """A part of a payload and of the options behind it."""

    octets: bytes
    length: int
    """Bytes of the whole payload."""
    served: float
    """Seconds that the server needed."""
    options: int | None
    """Bytes of the options, which follow the payload, counted until they are known to be too long. None: the message has no options."""


Read = Callable[[Claim, int, int], Awaitable[Piece | None]]
Renew = Callable[[Sequence[Claim]], Awaitable[bool]]


class Pace:
    """How much is asked for at once, by the time that earlier answers took."""

    def __init__(self) -> None:
        self.piece = FIRST
        """Bytes of the next piece of a payload."""
        self._most: int | None = None
        """Most bytes of a claim after a claim did not arrive in time; None without a limit."""
        self._widest = 0
        """The most bytes ever wanted of a claim: with nothing in flight that is the whole window."""
        self._expansion = 1
        """Bytes of memory that a claim is expected to take for each byte stored in the database."""

    def came(self, size: int, seconds: float, *, served: float, goal: float) -> None:
        """Learn from a piece. The server needs `served` seconds for each, however short, because it may print the whole content."""
        rate = size / max(seconds - served, 0.001)
        self.piece = min(max(int(rate * max(goal, served)), LEAST), self.piece * GROWTH)

    def of_claim(self, wanted: int) -> int:
        """Bytes that a claim may bring if `wanted` bytes are wanted."""
        self._widest = max(self._widest, wanted)
        return max(self._bounded(wanted) // self._expansion, 1)

    @property
    def large(self) -> int:
        """Most bytes of a message whose payload comes with the claim."""
        return self._bounded(LARGE)

    def overfull(self) -> None:
        """Learn from a claim that took more memory than there was, so that the database printed some payloads in vain."""
        self._expansion = min(self._expansion * GROWTH, MOST_EXPANSION)

    def unanswered(self) -> None:
        """Learn from a claim that got no answer at all: another one like it would delay everything as long again."""
        self._most = LEAST

    def claimed(self, arrived: float, whole: float, *, half: float, cut: bool, room: int, size: int) -> None:
        """Learn from a claim that brought something.

        Args:
            arrived: seconds that its statement took, without the time for a connection.
            whole: seconds until its missing payloads had come too.
            half: half of the lock time in seconds; an answer that takes longer leaves too little of the lock.
            cut: whether more was due than it might bring; only then does it show that more could be asked for.
            room: free bytes of the window. If they were fewer than a claim may bring, they cut the claim, which then shows nothing.
            size: bytes of memory that it took.

        """
        if cut and GROWTH * size <= room:
            self._expansion = max(self._expansion // 2, 1)
        if arrived > half:
            self.too_slow()
        elif self._most is not None and self._most < room and cut and whole < GOAL:
            self._most = self._most * 2 if self._most < USUAL else None

    def too_slow(self) -> None:
        """Learn from a claim that did not arrive in time: the next one must be smaller.

        Its size is taken from the limits of earlier claims, because the window's free room may just have been almost nothing.
        """
        self._most = max(min(self._most or USUAL, USUAL, self._widest) // GROWTH, LEAST)

    def _bounded(self, size: int) -> int:
        return size if self._most is None else min(size, self._most)


class Completed(NamedTuple):
    """The claims of one statement, sorted by what happened to their payloads."""

    whole: list[Claim]
    lost: list[Claim]
    """Claims whose locks this relay has lost."""
    back: list[Claim]
    """Claims that must be released: there was no time or no room for them, or they could not be read now."""
    failed: Claim | None
    """The message whose payload cannot be read, still locked."""
    failure: StoreError | None
    """Why that payload cannot be read."""


class Fetcher:
    """Adds the payloads that did not come with one claim.

    Args:
        read: reads a piece of a payload, by first byte and length; None if this relay has lost the lock.
        renew: extends the locks of claims; False if some of them are lost.
        pace: says how long pieces are.
        most: the most bytes of a payload.
        room: the most bytes of memory of all claims together. The sizes that the database stores are no bound: as text, payloads
            may be longer.
        half: seconds after which a lock must be renewed.
        since: monotonic seconds of the claim.
        leaving: whether the relay stops and sends nothing any more.

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
        """Fetch at least one payload, however large it is and however long it takes, so that the next claim comes to other messages.

        Further payloads are fetched while there is room and half of the lock time is not over, up to the first that cannot be had.
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
        """The claim with its payload, or with enough of it to show that it is too large; None if locks are lost, or if the relay stops."""
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
        """Whether the fetched payloads fill the room, or half of the lock time is over."""
        return self._room <= 0 or time.monotonic() > self._until

    @property
    def _in_vain(self) -> bool:
        """Whether nothing of the claims would be sent."""
        return self._taken_over or self._leaving()

    async def _renew_in_time(self) -> None:
        """Renew all locks that are held, if half of the lock time is over; a renewal that failed is tried again after the next piece."""
        if self._taken_over or not self._locked or time.monotonic() < self._renew_at:
            return
        began = time.monotonic()
        with suppress(StoreError):
            self._taken_over = not await self._renew(self._locked)
            self._renew_at = began + self._half


def _joined(claim: Claim, pieces: Sequence[bytes], last: Piece) -> Claim:
    """The claim with its payload and its options; most messages have no options."""
    octets = b"".join(pieces)
    if not last.options:
        return claim._replace(payload=octets, options=None)
    return claim._replace(payload=octets[: last.length], options=octets[last.length :])
