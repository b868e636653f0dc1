"""Fetches payloads and options that are too large for the claim statement. The claim is committed first, so a failure is an attempt.

They are fetched piece by piece; between two pieces, other statements that wait for the connection have their turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from relay.errors import StoreError
from relay.message import Claim, TruncatedPayload, memory_of

LARGE = 4 << 20
"""Most bytes of a message whose payload comes with the claim. If a large result kills the relay, its claim is rolled back. The attempt does
not count then, and the next claim does the same."""
NO_MEMORY = "The relay has no memory for a payload: give it more, or lower RELAY_WINDOW_BYTES and, by `relay config set`, max_body_bytes."
FIRST, LEAST, GROWTH = 1 << 18, 1 << 16, 4
"""Bytes of the first piece, bytes of the smallest piece, and the factor by which a piece may be longer than the previous one."""
GOAL, SHARE = 1.0, 0.1
"""Seconds that a piece should take, and the share of the lock time that it may take: renewals and heartbeats wait for a piece."""
MOST_EXPANSION = 1 << 12
"""Most bytes of text for each stored byte. An INSERT allows 32, and PostgreSQL may compress what it stores to a hundredth."""
USUAL = 32 << 20
"""Most bytes that a claim is assumed to have requested if only the window limited it, and it did not arrive in time."""


class Piece(NamedTuple):
    """A part of a payload and of the options behind it."""

    octets: bytes
    length: int
    """Bytes of the whole payload."""
    served: float
    """Seconds that the server needed for this piece."""
    options: int | None
    """Bytes of the options, which follow the payload; counting stops once they are too long. None: the message has no options."""


Read = Callable[[Claim, int, int], Awaitable[Piece | None]]
Renew = Callable[[Sequence[Claim]], Awaitable[bool]]


class Pace:
    """How many bytes one statement requests, depending on how long earlier answers took."""

    def __init__(self) -> None:
        self.piece = FIRST
        """Bytes of the next piece of a payload."""
        self._most: int | None = None
        """Most bytes that a claim may have since one did not arrive in time; None if each arrived in time."""
        self._widest = 0
        """The most bytes that a claim has ever requested: with nothing in flight, this is the whole window."""
        self._expansion = 1
        """Bytes of memory that a claim is expected to take for each byte stored in the database."""

    def came(self, size: int, seconds: float, *, served: float, goal: float) -> None:
        """Learn from a piece. The server needs `served` seconds even for a short piece, because it may print the whole content."""
        rate = size / max(seconds - served, 0.001)
        self.piece = min(max(int(rate * max(goal, served)), LEAST), self.piece * GROWTH)

    def of_claim(self, wanted: int) -> int:
        """Stored bytes that a claim may request if there is room for `wanted` bytes."""
        self._widest = max(self._widest, wanted)
        return max(self._bounded(wanted) // self._expansion, 1)

    @property
    def large(self) -> int:
        """Most bytes of a message whose payload comes with the claim."""
        return self._bounded(LARGE)

    def overfull(self) -> None:
        """Learn from a claim that needed more memory than there was. The database has converted some payloads to text in vain."""
        self._expansion = min(self._expansion * GROWTH, MOST_EXPANSION)

    def unanswered(self) -> None:
        """Learn from a claim that got no answer at all: a second claim of that size would delay everything for as long again."""
        self._most = LEAST

    def claimed(self, arrived: float, whole: float, *, half: float, cut: bool, room: int, size: int) -> None:
        """Learn from a claim that returned messages.

        Args:
            arrived: seconds that the claim's statement took, without the time for a connection.
            whole: seconds until the missing payloads had arrived too.
            half: half of the lock time in seconds; a slower answer leaves too little of the lock time.
            cut: whether the claim left out messages that were due; only such a claim shows that the next may be larger.
            room: free bytes of the window. A claim that the window limited does not show how much a claim may request.
            size: bytes of memory that the claim took.

        """
        if cut and GROWTH * size <= room:
            self._expansion = max(self._expansion // 2, 1)
        if arrived > half:
            self.too_slow()
        elif self._most is not None and self._most < room and cut and whole < GOAL:
            self._most = self._most * 2 if self._most < USUAL else None

    def too_slow(self) -> None:
        """Learn from a claim that did not arrive in time: the next claim must be smaller.

        This claim's own size is not used: it may have been small only because the window was almost full.
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
    """Claims that must be released, because there was no time or room for them, or because they could not be read now."""
    failed: Claim | None
    """The message whose payload cannot be read; it is still locked."""
    failure: StoreError | None
    """Why that payload cannot be read."""


class Fetcher:
    """Adds the payloads that one claim statement left out.

    Args:
        read: reads a piece of a payload, by first byte and length; None if this relay has lost the lock.
        renew: extends the locks of claims; False if some of them are lost.
        pace: says how many bytes a piece has.
        most: the most bytes of a payload.
        room: the most bytes of memory of all claims together. The stored sizes are no bound, because payloads may be longer as text.
        half: seconds after which a lock must be renewed.
        since: monotonic seconds of the claim.
        leaving: whether the relay shuts down and sends nothing more.

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
        """Fetch at least one payload, however large it is and however long it takes, so that the next claim reaches other messages.

        Further payloads are fetched while there is room and half of the lock time is not over, up to the first that cannot be read.
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
        """The claim with its payload, truncated if the payload is too large; None if locks are lost, or if the relay shuts down."""
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
        """Whether fetching is useless: another relay has these messages, or this relay shuts down."""
        return self._taken_over or self._leaving()

    async def _renew_in_time(self) -> None:
        """Renew all locks of these claims if half of the lock time is over. A failed renewal is tried again after the next piece."""
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
