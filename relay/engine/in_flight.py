"""Batches in flight: publish → decide → settle, each in its own task, and their drain at shutdown."""

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
"""Seconds after the drain in which known outcomes may still be written."""


class InFlight:
    """Every batch between its claim and its last settle.

    Args:
        publisher: sends batches.
        settler: writes outcomes.
        policy: returns the current policy of retries.
        settled: called with each settled portion.
        emit: sink of the events of a settle.

    """

    def __init__(
        self,
        *,
        publisher: Publisher,
        settler: Settler,
        policy: Callable[[], RetryPolicy],
        settled: Callable[[Batch, SettleResult], None],
        emit: events.Sink,
    ) -> None:
        self._publisher = publisher
        self._settler = settler
        self._policy = policy
        self._settled = settled
        self._emit = emit
        self._tasks: set[asyncio.Task[None]] = set()
        self._drain_ended = False
        self.kept = 0
        """How many messages were published but not confirmed when the drain ended; they stay locked."""

    def start(self, batch: Batch, tasks: asyncio.TaskGroup) -> None:
        """Start a batch; an unexpected error ends the task group."""
        task = tasks.create_task(self._publish_and_settle(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop_writing(self) -> None:
        """Publish nothing more: unsent messages are released, and sent messages still wait for their confirms."""
        self._publisher.stop_writing()

    async def drain(self, seconds: float) -> None:
        """Wait for confirms for `seconds`, then for settles of known outcomes; cancel the rest."""
        self._settler.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_GRACE)
        for task in self._tasks:
            task.cancel()

    def cut(self) -> None:
        """Stop waiting for confirms: messages that were published but not confirmed stay locked."""
        self._drain_ended = True
        self._publisher.cut()

    async def _publish_and_settle(self, batch: Batch) -> None:
        async with asyncio.TaskGroup() as settles:
            async for portion in self._publisher.publish(batch):
                outcomes = decide_all(portion, self._policy(), chance=random.random, leaving=self._drain_ended)
                settles.create_task(self._settle(batch, portion, outcomes))

    async def _settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        began = time.monotonic()
        async for written in self._settler.settle(batch, portion, outcomes):
            self._settled(batch, written)
            self.kept += sum(isinstance(outcome, Keep) for outcome in written.outcomes) if self._drain_ended else 0
            for event in events_of(written, time.monotonic() - began):
                self._emit(event)
