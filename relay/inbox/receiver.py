"""The receiving loop: take → write → acknowledge. No SQL, no AMQP, no settings.

A delivery is acknowledged only after its COMMIT. After a crash in between it is redelivered, and recognized as received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from relay import events
from relay.aio import pause, unless
from relay.errors import StoreError
from relay.events.inbox import BatchReceived, DeliveryRejected, ReceiveFailed
from relay.inbox.backpressure import InboxBackpressure
from relay.inbox.blame import Blame, problem_of
from relay.inbox.delivery import Delivery, Problem
from relay.inbox.ports import DeliveryBatch, DeliverySource, InboxStore

LONGEST_PAUSE = 5.0
"""Seconds at most between two attempts while the database is unavailable."""


class Received(NamedTuple):
    """How many deliveries were new, and how many were rejected."""

    new: int
    rejected: int


class Receiver:
    """Moves deliveries into the inbox until `stop`.

    Args:
        source: of deliveries.
        inbox: where deliveries are written.
        batch_size: deliveries in one write.
        batch_bytes: about how many bytes of payload are in one write.
        limit: messages in the inbox from which the source is paused.
        emit: takes events.
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
        self._backpressure = InboxBackpressure(source=source, inbox=inbox, limit=limit, emit=emit)

    @property
    def reasons(self) -> dict[str, str]:
        """Why nothing is consumed, by peer."""
        full = f"The inbox is full: {self._limit} messages wait in it (RELAY_INBOX_LIMIT)." if self._backpressure.full else None
        reasons = {"inbox": full, "database": self._database_error or self._backpressure.trouble}
        return {peer: reason for peer, reason in reasons.items() if reason}

    async def run(self) -> None:
        """Receive until `stop`; a write in progress is still finished and acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._backpressure.watch())
            while not self._stopping.is_set():
                if batch := await self._next():
                    await self._receive(batch)
            watch.cancel()

    def stop(self) -> None:
        """Stop consuming; `run` returns soon."""
        self._backpressure.end()
        self._stopping.set()

    async def _next(self) -> DeliveryBatch | None:
        taking = asyncio.ensure_future(self._source.take(self._batch_size, self._batch_bytes))
        await unless(self._stopping, _ended(taking))
        if not taking.done():
            taking.cancel()
            return None
        return taking.result()

    async def _receive(self, batch: DeliveryBatch) -> None:
        began = self._clock()
        received = await self._write(batch, batch.deliveries)
        self._database_error = None
        if received is None:
            return
        self._source.acknowledge(batch)
        known = len(batch.deliveries) - received.new - received.rejected
        self._emit(BatchReceived(received.new, known, received.rejected, self._clock() - began))
        await self._backpressure.wrote(received.new)

    async def _write(self, batch: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        """Write until it succeeds; None if the broker will redeliver the whole batch."""
        bad = [(each, each.problem) for each in deliveries if each.problem]
        good = [each for each in deliveries if not each.problem] if bad else deliveries
        received = await self._persist(batch, good) if good else Received(0, 0)
        for each, problem in bad:
            received = received and await self._reject(received, batch, each, problem)
        return received

    async def _persist(self, batch: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        """Write deliveries. Divide what is refused or goes unanswered until the delivery that is to blame is alone, and reject that one."""
        alone = len(deliveries) == 1
        try:
            new = await self._retry(batch, deliveries, lambda: self._inbox.write(deliveries), Blame(self._inbox, alone=alone))
        except StoreError as error:
            if not alone:
                # Half by half would wait for no answer nine times, where the batch has 500.
                return await self._write_parts(batch, deliveries, 1 if error.unanswered else len(deliveries) // 2)
            return await self._reject(Received(0, 0), batch, deliveries[0], problem_of(error))
        return None if new is None else Received(new, 0)

    async def _write_parts(self, batch: DeliveryBatch, deliveries: Sequence[Delivery], size: int) -> Received | None:
        received = Received(0, 0)
        for start in range(0, len(deliveries), size):
            written = await self._persist(batch, deliveries[start : start + size])
            if written is None:
                return None
            received = Received(received.new + written.new, received.rejected + written.rejected)
        return received

    async def _reject(self, received: Received, batch: DeliveryBatch, one: Delivery, problem: Problem) -> Received | None:
        """Archive one delivery as rejected, and count it."""
        new = await self._retry(batch, [one], lambda: self._inbox.reject(one, problem), None)
        if new:
            self._emit(DeliveryRejected(one.queue, problem.code, problem.sentence))
        return None if new is None else Received(received.new, received.rejected + new)

    async def _retry(
        self, batch: DeliveryBatch, deliveries: Sequence[Delivery], write: Callable[[], Awaitable[int]], blame: Blame | None
    ) -> int | None:
        """Try until it is written; raise what the deliveries are to blame for; None if the broker will redeliver the whole batch."""
        attempt = 0
        while not (self._source.is_lost(batch) or (attempt and self._stopping.is_set())):
            try:
                return await write()
            except StoreError as error:
                theirs = blame is not None and await blame.is_theirs(error, attempt)
                attempt += 1
                if not theirs or error.unanswered:
                    self._report(len(deliveries), error, attempt)
                if theirs:
                    raise
                await unless(self._stopping, asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE)))
        return None

    def _report(self, messages: int, error: StoreError, attempt: int) -> None:
        self._database_error = str(error)
        self._emit(ReceiveFailed(messages, str(error), attempt))


async def _ended(future: asyncio.Future[DeliveryBatch]) -> None:
    await asyncio.wait((future,))
