"""The receiving loop: take → write → acknowledge. No SQL, no AMQP, no settings.

A delivery is acknowledged only after its COMMIT. After a crash in between, the broker redelivers the message, and the inbox recognizes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from relay import events
from relay.aio import pause, unless
from relay.errors import StoreError
from relay.events.inbox import BatchReceived, DeliveryRejected, ReceiveFailed
from relay.inbox.backpressure import InboxBackpressure
from relay.inbox.blame import Blame, problem_of
from relay.inbox.delivery import Problem, refusal
from relay.inbox.held import LONGEST_PAUSE, Held, HeldDeliveries
from relay.inbox.ports import DeliverySource, InboxStore, Taken

WASTED_SECONDS = 0.5
"""A round of held deliveries ends after this many seconds spent on deliveries that stay held."""


class Received(NamedTuple):
    """How many deliveries were new, how many were rejected, and which are neither written nor rejected."""

    new: int
    rejected: int
    left: list[Taken]

    def plus(self, other: Received) -> Received:
        """Both results together."""
        return Received(self.new + other.new, self.rejected + other.rejected, self.left + other.left)


class Receiver:
    """Moves deliveries into the inbox until `stop`.

    Args:
        source: the source of deliveries.
        inbox: where deliveries are written.
        batch_size: most deliveries in one write.
        batch_bytes: about how many bytes of payload are in one write.
        limit: with this many messages in the inbox, the source is paused.
        emit: sink of events.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        *,
        source: DeliverySource,
        inbox: InboxStore,
        batch_size: int,
        batch_bytes: int,
        limit: int,
        emit: events.Sink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._inbox = inbox
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._limit = limit
        self._emit = emit
        self._clock = clock
        self._stopping = asyncio.Event()
        self._database_error: str | None = None
        self._held = HeldDeliveries(clock)
        self._backpressure = InboxBackpressure(source=source, inbox=inbox, limit=limit, emit=emit)

    @property
    def reasons(self) -> dict[str, str]:
        """Why nothing is consumed, by peer or queue."""
        full = f"The inbox is full: {self._limit} messages wait in it (RELAY_INBOX_LIMIT)." if self._backpressure.full else None
        reasons = {"inbox": full, "database": self._database_error or self._backpressure.trouble}
        held = {
            f"queue {queue}": f"Every delivery of queue {queue!r} waits, so no other comes: {errors[-1]}"
            for queue, errors in self._held.errors.items()
            if self._source.is_used_up(queue, len(errors))
        }
        return {peer: reason for peer, reason in reasons.items() if reason} | held

    @property
    def notes(self) -> dict[str, str]:
        """Why some deliveries wait while others enter the inbox."""
        return {"held": f"Deliveries that wait, unacknowledged: {len(self._held)}. {self._held.error}"} if self._held else {}

    async def run(self) -> None:
        """Receive until `stop`; a write in progress is still finished, and its deliveries are acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._backpressure.watch())
            while not self._stopping.is_set():
                if taken := await self._next():
                    await self._receive(taken)
                if self._held.patience == 0:
                    await self._try_held()
            watch.cancel()

    def stop(self) -> None:
        """Stop consuming; `run` returns soon."""
        self._backpressure.end()
        self._stopping.set()

    async def _next(self) -> list[Taken] | None:
        """The next deliveries; None at the stop, and when it is time to try held deliveries."""
        taking = asyncio.wait_for(self._source.take(self._batch_size, self._batch_bytes), self._held.patience)
        with suppress(TimeoutError):
            return await unless(self._stopping, taking)
        return None

    async def _receive(self, taken: Sequence[Taken], blame: Blame | None = None) -> None:
        began = self._clock()
        received = await self._write(taken, blame)
        self._database_error = None
        left = {id(each) for each in received.left}
        done = [each for each in taken if id(each) not in left] if left else taken
        if done:
            self._source.acknowledge(done)
            known = len(done) - received.new - received.rejected
            self._emit(BatchReceived(received.new, known, received.rejected, self._clock() - began))
            await self._backpressure.wrote(received.new)

    async def _try_held(self) -> None:
        """Try each held delivery once. Free deliveries are written, however long that takes; the others get at most a tenth of the time."""
        wasted = 0.0
        for _ in range(len(self._held)):
            began, held = self._clock(), self._held.pop()
            before = len(self._held)
            await self._receive([held.taken], held.blame)
            if len(self._held) > before:
                wasted += self._clock() - began
            if wasted > WASTED_SECONDS or self._stopping.is_set():
                break
        self._held.end_round(wasted)
        if self._held:
            self._emit(ReceiveFailed(len(self._held), self._held.error, self._held.rounds))

    async def _write(self, taken: Sequence[Taken], blame: Blame | None) -> Received:
        bad = [(each, each.delivery.problem) for each in taken if each.delivery.problem]
        return await self._write_without(bad, taken, blame)

    async def _write_without(self, bad: Sequence[tuple[Taken, Problem]], taken: Sequence[Taken], blame: Blame | None) -> Received:
        """Write deliveries, and reject the deliveries in `bad`."""
        rejected = {id(each) for each, _ in bad}
        good = [each for each in taken if id(each) not in rejected] if bad else taken
        received = await self._persist(good, blame) if good else Received(0, 0, [])
        for number, (each, problem) in enumerate(bad):
            if self._stopping.is_set():
                return received.plus(Received(0, 0, [rest for rest, _ in bad[number:]]))
            received = received.plus(await self._reject(each, problem, Blame(self._inbox, rejects=False)))
        return received

    async def _persist(self, taken: Sequence[Taken], blame: Blame | None = None) -> Received:
        """Write deliveries. If their write fails while others succeed, divide them until the cause is alone, then reject or hold it."""
        alone = len(taken) == 1
        blame = blame or Blame(self._inbox, rejects=alone)
        try:
            new = await self._retry(taken, lambda: self._inbox.write([each.delivery for each in taken]), blame)
        except StoreError as error:
            if error.row_is_guilty and (bad := [(each, problem) for each in taken if (problem := refusal(each.delivery))]):
                return await self._write_without(bad, taken, None)
            if not alone:
                # Halving a batch of 500 would wait for an answer or a lock nine times.
                size = 1 if error.unanswered or error.in_passing else len(taken) // 2
                return await self._write_parts(taken, size, lost_at=blame.lost_at)
            problem = problem_of(error)
            return await self._reject(taken[0], problem, blame) if problem else self._hold(taken[0], blame, error)
        return Received(0, 0, [*taken]) if new is None else Received(new, 0, [])

    async def _write_parts(self, taken: Sequence[Taken], size: int, *, lost_at: float | None) -> Received:
        received = Received(0, 0, [])
        for start in range(0, len(taken), size):
            if self._stopping.is_set():
                return received.plus(Received(0, 0, [*taken[start:]]))
            part = taken[start : start + size]
            received = received.plus(await self._persist(part, Blame(self._inbox, rejects=len(part) == 1, lost_at=lost_at)))
        return received

    async def _reject(self, one: Taken, problem: Problem, blame: Blame) -> Received:
        """Archive one delivery as rejected, and count it. If the archive refuses it too, but accepts others, hold the delivery."""
        rejecting = Blame(self._inbox, rejects=False, lost_at=blame.lost_at)
        try:
            new = await self._retry([one], lambda: self._inbox.reject(one.delivery, problem), rejecting)
        except StoreError as error:
            blame.lost_at = rejecting.lost_at
            return self._hold(one, blame, error)
        if new:
            self._emit(DeliveryRejected(one.delivery.queue, problem.code, problem.sentence))
        return Received(0, 0, [one]) if new is None else Received(0, new, [])

    def _hold(self, one: Taken, blame: Blame, error: StoreError) -> Received:
        """Keep a delivery unacknowledged, to try it again while others are received."""
        self._held.put(Held(one, blame, error))
        return Received(0, 0, [one])

    async def _retry(self, taken: Sequence[Taken], write: Callable[[], Awaitable[int]], blame: Blame) -> int | None:
        """Retry until the write succeeds; None if the broker will redeliver all deliveries. Raise an error that the deliveries cause."""
        attempt = 0
        while not (self._source.is_lost(taken) or (attempt and self._stopping.is_set())):
            try:
                return await write()
            except StoreError as error:
                theirs = await blame.is_theirs(error)
                attempt += 1
                if not theirs or error.unanswered:
                    self._report(len(taken), error, attempt)
                if theirs:
                    raise
                await unless(self._stopping, asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE)))
        return None

    def _report(self, messages: int, error: StoreError, attempt: int) -> None:
        self._database_error = str(error)
        self._emit(ReceiveFailed(messages, str(error), attempt))
