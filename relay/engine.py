"""The core loop: claim → publish → decide → settle, several batches in the air."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from relay import events
from relay.claimer import Claimer
from relay.inhand import InHand
from relay.message import Batch, Keep, Outcome, Portion
from relay.ports import Intake, Publisher, Settler, Wakeup
from relay.retry import RetryPolicy, decide
from relay.tally import tally
from relay.waiting import unless

FULL_ENOUGH = 0.25
"""Share of a batch that must be free in the window before the next claim: few large claims beat many small ones."""
SETTLE_GRACE = 5.0
"""Seconds after the drain in which outcomes that are known may still be written."""


class Engine:
    """Moves messages from the queue to the archive until it is told to stop."""

    def __init__(
        self,
        *,
        intake: Intake,
        publisher: Publisher,
        settler: Settler,
        wakeup: Wakeup,
        in_hand: InHand,
        policy: Callable[[], RetryPolicy],
        batch_size: int,
        emit: events.Sink,
    ) -> None:
        self._intake = intake
        self._publisher = publisher
        self._settler = settler
        self._wakeup = wakeup
        self._in_hand = in_hand
        self._policy = policy
        self._batch_size = batch_size
        self._emit = emit
        self._stopping = asyncio.Event()
        self._nudged = asyncio.Event()
        self._leaving = False
        self._moves: set[asyncio.Task[None]] = set()
        self._claimer = Claimer(intake=intake, stopping=self._stopping, emit=emit)
        self._ended = False
        self.kept = 0
        """Messages that were written and not confirmed when the drain ended: they keep their locks."""

    async def run(self, *, drain_seconds: float) -> None:
        """Claim until `stop`, then let what is in flight finish within `drain_seconds` and cut the rest."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._stopping.is_set():
                    if batch := await self._next_batch():
                        move = tasks.create_task(self._move(batch))
                        self._moves.add(move)
                        move.add_done_callback(self._moves.discard)
                await self._drain(drain_seconds)
        finally:
            self._ended = True

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what is in flight is through."""
        self._stopping.set()
        self._nudged.set()

    def cut(self) -> None:
        """Stop, and wait for no confirm any more: what is written and not confirmed keeps its lock."""
        self._leaving = True
        self.stop()
        self._claimer.cut()
        self._publisher.cut()

    def hint(self) -> None:
        """Messages may have been inserted: look at once."""
        self._intake.hint()
        self._nudged.set()

    def nudge(self) -> None:
        """Something has changed: do not sleep past it."""
        self._nudged.set()

    @property
    def running(self) -> bool:
        """Neither ended nor failed."""
        return not self._ended

    async def _next_batch(self) -> Batch | None:
        if not self._publisher.ready:
            await unless(self._stopping, self._publisher.wait_ready())
            return None
        self._nudged.clear()
        room, room_bytes = self._in_hand.room()
        if room < min(self._batch_size, self._in_hand.window) * FULL_ENOUGH or room_bytes <= 0:
            await unless(self._stopping, self._nudged.wait())
            return None
        batch = await self._claimer.claim(min(room, self._batch_size), room_bytes)
        if batch:
            self._in_hand.add(batch)
            self._wakeup.busy(len(batch.claims))
        elif not (self._claimer.failed or self._stopping.is_set()):
            await self._rest()
        return batch

    async def _rest(self) -> None:
        """Nothing is due: have writers notify, look once more, and sleep until a hint or the next look."""
        if await self._wakeup.idle():
            self._intake.hint()
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._nudged.wait(), self._intake.until_next_look())

    async def _move(self, batch: Batch) -> None:
        async with asyncio.TaskGroup() as settles:
            async for portion in self._publisher.publish(batch):
                policy = self._policy()
                outcomes = [
                    decide(claim, result, policy, chance=random.random(), leaving=self._leaving)  # noqa: S311 - jitter, not cryptography
                    for claim, result in zip(portion.claims, portion.results, strict=True)
                ]
                settles.create_task(self._settle(batch, portion, outcomes))

    async def _settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        began = time.monotonic()
        async for written in self._settler.settle(batch, portion, outcomes):
            self._in_hand.remove(batch, written.portion.claims)
            self._intake.settled(written.portion, written.outcomes)
            self._nudged.set()
            self.kept += sum(isinstance(outcome, Keep) for outcome in written.outcomes) if self._leaving else 0
            for event in tally(written, time.monotonic() - began):
                self._emit(event)

    async def _drain(self, seconds: float) -> None:
        self._settler.leave()
        if self._moves:
            await asyncio.wait(self._moves, timeout=seconds)
        self._leaving = True
        self._publisher.cut()
        if self._moves:
            await asyncio.wait(self._moves, timeout=SETTLE_GRACE)
        for move in self._moves:
            move.cancel()
