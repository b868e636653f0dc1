"""The core loop: claim → publish → decide → settle, several batches in the air."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from relay import events
from relay.aio import unless
from relay.engine.claimer import Claimer
from relay.engine.in_flight import InFlight
from relay.engine.retry import RetryPolicy
from relay.engine.window import Window
from relay.message import Batch
from relay.ports import Intake, Publisher, Settler, SettleResult, Wakeup

FULL_ENOUGH = 0.5
"""Share of a batch that must be free in the window before the next claim: few large claims beat many small ones (docs/decisions/0022)."""


class Engine:
    """Moves messages from the queue to the archive until it is told to stop.

    Args:
        intake: where batches come from.
        publisher: sends them.
        settler: writes what became of them.
        wakeup: has writers notify while there is nothing to do.
        window: bounds what is in flight.
        policy: says how often and how long to try.
        batch_size: messages of one claim, at the most.
        nudged: set when something has changed that a sleep must not outlast.
        emit: takes events.

    """

    def __init__(
        self,
        *,
        intake: Intake,
        publisher: Publisher,
        settler: Settler,
        wakeup: Wakeup,
        window: Window,
        policy: Callable[[], RetryPolicy],
        batch_size: int,
        nudged: asyncio.Event,
        emit: events.Sink,
    ) -> None:
        self._intake = intake
        self._publisher = publisher
        self._wakeup = wakeup
        self._window = window
        self._batch_size = batch_size
        self._stopping = asyncio.Event()
        self._nudged = nudged
        self._claimer = Claimer(intake=intake, stopping=self._stopping, emit=emit)
        self._flight = InFlight(publisher=publisher, settler=settler, policy=policy, landed=self._landed, emit=emit)
        self._ended = False
        self.claiming = True
        """A claim is unanswered or waits for the broker, or the last one failed: there may be something to move."""

    async def run(self, *, drain_seconds: float) -> None:
        """Claim until `stop`, then let what is in flight finish within `drain_seconds` and cut the rest."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._stopping.is_set():
                    if batch := await self._next_batch():
                        self._flight.launch(batch, tasks)
                await self._flight.land(drain_seconds)
        finally:
            self._ended = True

    def stop(self) -> None:
        """Claim nothing and write nothing more; `run` returns when what is written is through and the rest released."""
        self._stopping.set()
        self._nudged.set()
        self._flight.stop_writing()

    def cut(self) -> None:
        """Stop, and wait for no confirm any more: what is written and not confirmed keeps its lock."""
        self.stop()
        self._claimer.cut()
        self._flight.cut()

    @property
    def running(self) -> bool:
        """Neither ended nor failed."""
        return not self._ended

    @property
    def kept(self) -> int:
        """Messages that were written and not confirmed when the drain ended: they keep their locks."""
        return self._flight.kept

    async def _next_batch(self) -> Batch | None:
        if not self._publisher.ready:
            self.claiming = True
            await unless(self._stopping, self._publisher.wait_ready())
            return None
        self._nudged.clear()
        room, room_bytes = self._window.room()
        # Beside an exchange that is stuck half of the window is all there is.
        if room_bytes <= 0 or room < max(1, min(self._batch_size, self._window.max_messages // 2) * FULL_ENOUGH):
            await unless(self._stopping, self._nudged.wait())
            return None
        self.claiming = True
        batch = await self._claimer.claim(min(room, self._batch_size), room_bytes)
        # After one that failed the next one begins before anybody looks.
        self.claiming = False
        if batch:
            self._window.add(batch)
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
            async with asyncio.timeout(self._intake.until_next_look()):
                await self._nudged.wait()

    def _landed(self, batch: Batch, written: SettleResult) -> None:
        """There is room again, and keys may have come free."""
        self._window.remove(batch, written.portion.claims)
        self._intake.settled(written.portion, written.outcomes)
        self._nudged.set()
