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
from relay.inbox.delivery import Delivery, Problem
from relay.inbox.ports import DeliveryBatch, DeliverySource, InboxStore

LONGEST_PAUSE = 5.0
"""Seconds at most between two attempts while the database is unavailable."""


REFUSALS = 3
"""Attempts before a refused delivery is rejected, where the cause may lie outside of it, such as in a trigger."""


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
        """Write deliveries. Halve a refused batch until the refused delivery is alone, and reject that one."""
        alone = len(deliveries) == 1

        def is_refusal(error: StoreError, attempt: int) -> bool:
            return error.row_is_guilty or (error.refused and (not alone or attempt >= REFUSALS))

        try:
            new = await self._retry(batch, deliveries, lambda: self._inbox.write(deliveries), is_refusal)
        except StoreError as error:
            if not alone:
                return await self._write_halves(batch, deliveries)
            return await self._reject(Received(0, 0), batch, deliveries[0], Problem("row_refused", str(error)))
        return None if new is None else Received(new, 0)

    async def _write_halves(self, batch: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        middle = len(deliveries) // 2
        first = await self._persist(batch, deliveries[:middle])
        rest = first and await self._persist(batch, deliveries[middle:])
        return Received(first.new + rest.new, first.rejected + rest.rejected) if first and rest else None

    async def _reject(self, received: Received, batch: DeliveryBatch, one: Delivery, problem: Problem) -> Received | None:
        """Archive one delivery as rejected, and count it."""
        new = await self._retry(batch, [one], lambda: self._inbox.reject(one, problem), lambda *_: False)
        if new:
            self._emit(DeliveryRejected(one.queue, problem.code, problem.sentence))
        return None if new is None else Received(received.new, received.rejected + new)

    async def _retry(
        self,
        batch: DeliveryBatch,
        deliveries: Sequence[Delivery],
        write: Callable[[], Awaitable[int]],
        is_refusal: Callable[[StoreError, int], bool],
    ) -> int | None:
        """Try until it is written; raise a refusal; None if the broker will redeliver the whole batch."""
        attempt = 0
        while not (self._source.is_lost(batch) or (attempt and self._stopping.is_set())):
            try:
                return await write()
            except StoreError as error:
                if is_refusal(error, attempt):
                    raise
                attempt += 1
                await self._report_and_wait(len(deliveries), error, attempt)
        return None

    async def _report_and_wait(self, messages: int, error: StoreError, attempt: int) -> None:
        self._database_error = str(error)
        self._emit(ReceiveFailed(messages, str(error), attempt))
        await unless(self._stopping, asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE)))


async def _ended(future: asyncio.Future[DeliveryBatch]) -> None:
    await asyncio.wait((future,))
