"""One batch that is being published: the result of each message, and the portions in which results are handed back; no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, cast

from relay.message import Batch, Portion, PublishResult, Verdict

OVERDUE: Final = PublishResult(Verdict.UNWRITTEN, "deadline", "The time in which it might be written to the broker had passed.")
ABANDONED: Final = PublishResult(Verdict.UNKNOWN, "abandoned", "No caller waits for the result any more.")


class PublishBatch:
    """Results of a batch, each written once. A slot of a `ConfirmTracker` consists of such a batch and the index of a message in it."""

    __slots__ = (
        *("_clock", "_done", "_reported", "_undecided"),
        *("batch", "claims", "confirmed", "doubted", "published", "refused", "results"),
    )

    def __init__(self, batch: Batch, clock: Callable[[], float]) -> None:
        count = len(batch.claims)
        self._clock = clock
        self.batch = batch
        self.claims = batch.claims
        self.results: list[PublishResult | None] = [None] * count
        self.published = [0.0] * count
        """Monotonic time of the first write; 0.0: the broker cannot have the message."""
        self.confirmed = [0.0] * count
        self.doubted: set[int] = set()
        """Messages that the broker may have accepted on a channel that died before the confirm."""
        self.refused: dict[int, PublishResult] = {}
        """Refusals by a contract, for messages that could otherwise be sent."""
        self._undecided = count
        self._reported: set[int] = set()
        self._done = asyncio.Event()
        if not count:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether every message has its result."""
        return not self._undecided

    def in_doubt(self) -> list[Slot]:
        """Messages that the broker may have and that have no result."""
        return [(self, index) for index, result in enumerate(self.results) if result is None and self.published[index]]

    def decide(self, index: int, result: PublishResult, confirmed: float = 0.0) -> None:
        """Write the result of one message; later results for it are ignored."""
        if self.results[index] is not None:
            return
        self.results[index] = result
        self.confirmed[index] = confirmed
        self._undecided -= 1
        if not self._undecided:
            self._done.set()

    def give_up(self, *, written: PublishResult | None, unwritten: PublishResult) -> None:
        """Decide undecided messages: `written` for those that the broker may have (None: they wait for their confirm), else `unwritten`."""
        for index, result in enumerate(self.results):
            if result is None:
                verdict = written if self.published[index] else unwritten
                if verdict is not None:
                    self.decide(index, verdict)

    async def portions(self, patience: float) -> AsyncGenerator[Portion, None]:
        """Yield all results together, or every `patience` seconds the new results; return when all results were yielded."""
        try:
            while len(self._reported) < len(self.claims):
                await self._wait(patience)
                fresh = [index for index, result in enumerate(self.results) if result is not None and index not in self._reported]
                if fresh:
                    self._reported.update(fresh)
                    yield self._portion(fresh)
        finally:
            self.give_up(written=ABANDONED, unwritten=ABANDONED)

    async def _wait(self, patience: float) -> None:
        """Wait until all is decided or `patience` ends; then decide unwritten messages that are past their deadline."""
        try:
            async with asyncio.timeout(patience):
                await self._done.wait()
        except TimeoutError:
            if self._clock() >= self.batch.deadline:
                self.give_up(written=None, unwritten=OVERDUE)

    def _portion(self, fresh: list[int]) -> Portion:
        results = cast("list[PublishResult]", self.results)
        if len(fresh) == len(self.claims):
            return Portion(self.claims, results, self.published, self.confirmed)
        return Portion(
            [self.claims[index] for index in fresh],
            [results[index] for index in fresh],
            [self.published[index] for index in fresh],
            [self.confirmed[index] for index in fresh],
        )


Slot = tuple[PublishBatch, int]
"""A message: its batch, and its place in the batch."""


def relay_id(slot: Slot) -> str:
    """Return the id by which a returned message is recognised."""
    job, index = slot
    return job.claims[index].id


def decide_all(slots: Iterable[Slot], result: PublishResult) -> None:
    """Write the same result for all these messages."""
    for job, index in slots:
        job.decide(index, result)


def doubt(slots: Iterable[Slot]) -> None:
    """Note that the broker may have accepted these messages."""
    for job, index in slots:
        job.doubted.add(index)


def by_batch(slots: Iterable[Slot]) -> dict[PublishBatch, list[int]]:
    """Places of messages by their batch, in their order."""
    batches: dict[PublishBatch, list[int]] = {}
    for job, place in slots:
        batches.setdefault(job, []).append(place)
    return batches
