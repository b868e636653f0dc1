"""The receiving loop: take → write → acknowledge. No SQL, no AMQP, no settings.

A delivery is acknowledged after the COMMIT that holds it, and never before; whatever ends in between comes again and is known by then.
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
"""Seconds between two tries while the database is away."""


REFUSALS = 3
"""Tries of a delivery that the database refuses for a reason that need not be its own, such as a trigger's, until it is rejected."""


class Received(NamedTuple):
    """What became of deliveries."""

    new: int
    rejected: int


class Receiver:
    """Moves deliveries into the inbox until it is told to stop.

    Args:
        source: where they come from.
        inbox: where they go.
        batch_size: deliveries of one write.
        batch_bytes: about how many bytes of payload one write takes.
        limit: messages in the inbox above which nothing is taken from the queues.
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
        self._trouble: str | None = None
        self._room = InboxBackpressure(source=source, inbox=inbox, limit=limit, emit=emit)

    @property
    def reasons(self) -> dict[str, str]:
        """Why nothing is taken from the queues, by what it is about."""
        full = f"The inbox is full: {self._limit} messages wait in it (RELAY_INBOX_LIMIT)." if self._room.full else None
        return {name: sentence for name, sentence in (("inbox", full), ("database", self._trouble or self._room.trouble)) if sentence}

    async def run(self) -> None:
        """Receive until `stop`; what is being written then is written and acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            looks = tasks.create_task(self._room.watch())
            while not self._stopping.is_set():
                if handful := await self._next():
                    await self._receive(handful)
            looks.cancel()

    def stop(self) -> None:
        """Take nothing more; `run` returns soon."""
        self._room.end()
        self._stopping.set()

    async def _next(self) -> DeliveryBatch | None:
        taking = asyncio.ensure_future(self._source.take(self._batch_size, self._batch_bytes))
        await unless(self._stopping, _ended(taking))
        if not taking.done():
            taking.cancel()
            return None
        return taking.result()

    async def _receive(self, handful: DeliveryBatch) -> None:
        began = self._clock()
        came = await self._write(handful, handful.deliveries)
        self._trouble = None
        if came is None:
            return
        self._source.acknowledge(handful)
        known = len(handful.deliveries) - came.new - came.rejected
        self._emit(BatchReceived(came.new, known, came.rejected, self._clock() - began))
        await self._room.wrote(came.new)

    async def _write(self, handful: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        """Write until it is written; None if it never may be, because the broker brings all of it again."""
        bad = [(each, each.problem) for each in deliveries if each.problem]
        good = [each for each in deliveries if not each.problem] if bad else deliveries
        came = await self._persist(handful, good) if good else Received(0, 0)
        for each, problem in bad:
            came = came and await self._plus(came, handful, each, problem)
        return came

    async def _persist(self, handful: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        """Write deliveries; halve what the database refuses until that delivery stands alone, which is rejected."""
        alone = len(deliveries) == 1

        def is_refusal(error: StoreError, attempt: int) -> bool:
            return error.row_is_guilty or (error.refused and (not alone or attempt >= REFUSALS))

        try:
            new = await self._tried(handful, deliveries, lambda: self._inbox.write(deliveries), is_refusal)
        except StoreError as error:
            if not alone:
                return await self._halved(handful, deliveries)
            return await self._plus(Received(0, 0), handful, deliveries[0], Problem("row_refused", str(error)))
        return None if new is None else Received(new, 0)

    async def _halved(self, handful: DeliveryBatch, deliveries: Sequence[Delivery]) -> Received | None:
        middle = len(deliveries) // 2
        first = await self._persist(handful, deliveries[:middle])
        rest = first and await self._persist(handful, deliveries[middle:])
        return Received(first.new + rest.new, first.rejected + rest.rejected) if first and rest else None

    async def _plus(self, came: Received, handful: DeliveryBatch, one: Delivery, problem: Problem) -> Received | None:
        """Put one to the dead side."""
        new = await self._tried(handful, [one], lambda: self._inbox.reject(one, problem), lambda *_: False)
        if new:
            self._emit(DeliveryRejected(one.queue, problem.code, problem.sentence))
        return None if new is None else Received(came.new, came.rejected + new)

    async def _tried(
        self,
        handful: DeliveryBatch,
        deliveries: Sequence[Delivery],
        write: Callable[[], Awaitable[int]],
        is_refusal: Callable[[StoreError, int], bool],
    ) -> int | None:
        """Try until it is written, or until waiting helps no more, which is raised; None where the broker brings all of it again."""
        attempt = 0
        while not (self._source.is_lost(handful) or (attempt and self._stopping.is_set())):
            try:
                return await write()
            except StoreError as error:
                if is_refusal(error, attempt):
                    raise
                attempt += 1
                await self._failed(len(deliveries), error, attempt)
        return None

    async def _failed(self, messages: int, error: StoreError, attempt: int) -> None:
        self._trouble = str(error)
        self._emit(ReceiveFailed(messages, str(error), attempt))
        await unless(self._stopping, asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE)))


async def _ended(future: asyncio.Future[DeliveryBatch]) -> None:
    await asyncio.wait((future,))
