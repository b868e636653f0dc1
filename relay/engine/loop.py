"""The core loop: claim → publish → decide → settle, with several batches in flight."""

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

MIN_CLAIM_SHARE = 0.5
"""Share of a batch that must be free in the window before the next claim: few large claims beat many small ones (docs/decisions/0022)."""


class Engine:
    """Moves messages from the queue to the archive until `stop`.

    Args:
        intake: claims batches.
        publisher: sends the batches.
        settler: writes the outcomes.
        wakeup: makes writers notify the relay while it is idle.
        window: limits the messages in flight.
        policy: returns the current policy of retries.
        batch_size: most messages of one claim.
        nudged: set to end a sleep early.
        emit: sink of events.

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
        self._in_flight = InFlight(publisher=publisher, settler=settler, policy=policy, settled=self._on_settled, emit=emit)
        self._ended = False
        self.claiming = True
        """Whether there may be work: a claim is running, is waiting for the broker, or has failed."""

    async def run(self, *, drain_seconds: float) -> None:
        """Claim until `stop`, then drain for `drain_seconds` and cut the rest."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._stopping.is_set():
                    if batch := await self._next_batch():
                        self._in_flight.start(batch, tasks)
                await self._in_flight.drain(drain_seconds)
        finally:
            self._ended = True

    def stop(self) -> None:
        """Claim and publish nothing more; `run` returns when the sent messages are settled and all other messages are released."""
        self._stopping.set()
        self._nudged.set()
        self._in_flight.stop_writing()

    def cut(self) -> None:
        """Stop, and do not wait for confirms: messages that were published but not confirmed stay locked."""
        self.stop()
        self._claimer.cut()
        self._in_flight.cut()

    @property
    def running(self) -> bool:
        """Whether `run` has neither ended nor failed."""
        return not self._ended

    @property
    def kept(self) -> int:
        """How many messages were published but not confirmed when the drain ended; they stay locked."""
        return self._in_flight.kept

    async def _next_batch(self) -> Batch | None:
        if not self._publisher.ready:
            self.claiming = True
            await unless(self._stopping, self._publisher.wait_ready())
            return None
        self._nudged.clear()
        room, room_bytes = self._window.room()
        # While an exchange is stuck, only half of the window is free for the other exchanges.
        if room_bytes <= 0 or room < max(1, min(self._batch_size, self._window.max_messages // 2) * MIN_CLAIM_SHARE):
            await unless(self._stopping, self._nudged.wait())
            return None
        self.claiming = True
        batch = await self._claimer.claim(min(room, self._batch_size), room_bytes)
        # After a failed claim the next claim starts before other code can read `claiming`.
        self.claiming = False
        if batch:
            self._window.add(batch)
            self._wakeup.busy(len(batch.claims))
        elif not (self._claimer.failed or self._stopping.is_set()):
            await self._rest()
        return batch

    async def _rest(self) -> None:
        """Rest, because nothing is due: make writers notify, poll once more, and sleep until a hint or the next poll."""
        if await self._wakeup.idle():
            self._intake.hint()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._intake.until_next_look()):
                await self._nudged.wait()

    def _on_settled(self, batch: Batch, written: SettleResult) -> None:
        """Remove settled claims from the window, and tell the intake, because ordering keys may be free."""
        self._window.remove(batch, written.portion.claims)
        self._intake.settled(written.portion, written.outcomes)
        self._nudged.set()
