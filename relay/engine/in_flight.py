"""Batches in the air: publish → decide → settle, each on its own, and how they come down when the relay leaves."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from relay import events
from relay.engine.retry import RetryPolicy, decide_all
from relay.engine.settle_events import events_of
from relay.message import Batch, Keep, Outcome, Portion
from relay.ports import Publisher, Settler, SettleResult

SETTLE_GRACE = 5.0
"""Seconds after the drain in which outcomes that are known may still be written."""


class InFlight:
    """Every batch between its claim and its last settle.

    Args:
        publisher: sends batches.
        settler: writes outcomes.
        policy: says how often and how long to try.
        landed: hears of what was written.
        emit: sink of what there is to tell of a settle.

    """

    def __init__(
        self,
        *,
        publisher: Publisher,
        settler: Settler,
        policy: Callable[[], RetryPolicy],
        landed: Callable[[Batch, SettleResult], None],
        emit: events.Sink,
    ) -> None:
        self._publisher = publisher
        self._settler = settler
        self._policy = policy
        self._landed = landed
        self._emit = emit
        self._moves: set[asyncio.Task[None]] = set()
        self._leaving = False
        self.kept = 0
        """Messages that were written and not confirmed when the drain ended: they keep their locks."""

    def launch(self, batch: Batch, tasks: asyncio.TaskGroup) -> None:
        """Send a batch on its way; what nobody expected to go wrong ends the group."""
        move = tasks.create_task(self._move(batch))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    def stop_writing(self) -> None:
        """Write nothing more: what the broker cannot have is released, the rest waits for its confirm."""
        self._publisher.stop_writing()

    async def land(self, seconds: float) -> None:
        """Wait for confirms for so long, then for what is known to be written; cancel what is left."""
        self._settler.leave()
        if self._moves:
            await asyncio.wait(self._moves, timeout=seconds)
        self.cut()
        if self._moves:
            await asyncio.wait(self._moves, timeout=SETTLE_GRACE)
        for move in self._moves:
            move.cancel()

    def cut(self) -> None:
        """Wait for no confirm any more: what is written and not confirmed keeps its lock."""
        self._leaving = True
        self._publisher.cut()

    async def _move(self, batch: Batch) -> None:
        async with asyncio.TaskGroup() as settles:
            async for portion in self._publisher.publish(batch):
                outcomes = decide_all(portion, self._policy(), chance=random.random, leaving=self._leaving)
                settles.create_task(self._settle(batch, portion, outcomes))

    async def _settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        began = time.monotonic()
        async for written in self._settler.settle(batch, portion, outcomes):
            self._landed(batch, written)
            self.kept += sum(isinstance(outcome, Keep) for outcome in written.outcomes) if self._leaving else 0
            for event in events_of(written, time.monotonic() - began):
                self._emit(event)
