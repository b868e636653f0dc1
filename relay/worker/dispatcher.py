"""Calls the handler with claimed messages: the publisher of a worker, in place of the publisher to RabbitMQ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final

from relay.events import NOBODY, Sink
from relay.events.inbox import HandlerFailed, HandlerOverdue, HandlerRaised
from relay.message import Batch, Claim, Portion, PublishResult, Verdict
from relay.worker.outcomes import LATE, LOST, OVERDUE, STOPPED, TransientAttemptError, location, type_and_text, verdict

GATHER_SECONDS: Final = 0.02
"""Seconds after the first result in which further results join the same settle."""
CANCEL_SECONDS: Final = 1.0
"""Seconds within which a handler must end after it was cancelled."""


Run = Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]
"""Handles claims of a batch in one call; raises the handler's errors."""


class Dispatcher:
    """The publisher of a worker's engine; see `relay.ports.Publisher`.

    Args:
        run: handles claims.
        group: most claims in one call.
        concurrency: most handlers that run at the same time.
        seconds: time limit of one call, during which its locks are renewed; None for no limit.
        left_locked: called when a message stays locked because its handler did not end in time.
        stuck: called when the handlers in all slots ignore their cancellation, so that no further message can be handled.
        emit: sink of events of handlers that fail or do not end.
        package: the handler's package.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        *,
        run: Run,
        group: int,
        concurrency: int,
        seconds: float | None,
        left_locked: Callable[[], None],
        stuck: Callable[[], None],
        emit: Sink = NOBODY,
        package: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._group = group
        self._slots = asyncio.Semaphore(concurrency)
        self._seconds = seconds
        self._left_locked = left_locked
        self._stuck = stuck
        self._concurrency = concurrency
        self._ignoring_cancel: set[asyncio.Task[PublishResult]] = set()
        self._emit = emit
        self._package = package
        self._clock = clock
        self._running: set[asyncio.Task[PublishResult]] = set()
        self._stopping = asyncio.Event()
        self._cut = asyncio.Event()

    ready = True

    async def start(self) -> None:
        """Do nothing, because a worker connects to no broker."""

    async def aclose(self) -> None:
        """Cancel running handlers; may be called at any time, and repeatedly."""
        self.cut()
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=CANCEL_SECONDS)

    async def wait_ready(self) -> None:
        """See `relay.ports.Publisher`."""

    def silent(self) -> dict[str, float]:
        """Return nothing, because a handler may take long, and its locks are renewed."""
        return {}

    @property
    def hangs(self) -> bool:
        """Whether a handler still runs after it was cancelled."""
        return bool(self._running)

    def stop_writing(self) -> None:
        """Start no further handler; running handlers may end."""
        self._stopping.set()

    def cut(self) -> None:
        """Stop waiting for handlers."""
        self._stopping.set()
        self._cut.set()

    async def publish(self, batch: Batch) -> AsyncGenerator[Portion, None]:
        """See `relay.ports.Publisher`; a portion has the first result and all further results within `GATHER_SECONDS`."""
        claims = batch.claims
        groups = [claims[at : at + self._group] for at in range(0, len(claims), self._group)]
        waiting = {asyncio.create_task(self._handle(batch, group)): group for group in groups}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if len(done) < len(waiting):
                    done, _ = await asyncio.wait(waiting, timeout=GATHER_SECONDS)
                yield self._portion([(waiting.pop(task), task.result()) for task in done])
        finally:
            for task in waiting:
                task.cancel()

    def _portion(self, ended: Sequence[tuple[Sequence[Claim], Sequence[tuple[PublishResult, float]]]]) -> Portion:
        pairs = [pair for group, results in ended for pair in zip(group, results, strict=True)]
        now = self._clock()
        return Portion(
            [claim for claim, _ in pairs],
            [result for _, (result, _) in pairs],
            [began for _, (_, began) in pairs],
            [now if began else 0.0 for _, (_, began) in pairs],
        )

    async def _handle(self, batch: Batch, group: Sequence[Claim]) -> list[tuple[PublishResult, float]]:
        """One result for each claim of a group, with the start of its handler, or 0.0 if no handler started. Never raises."""
        if not await self._acquire_slot():
            return [(STOPPED, 0.0)] * len(group)
        began = self._clock()
        late = any(batch.is_overdue(claim, began) for claim in group)
        if late:
            self._slots.release()
        result, began = (LATE, 0.0) if late else (await self._attempt(batch, group), began)
        if len(group) > 1 and (late or result.verdict in (Verdict.REFUSED, Verdict.INVALID)):
            # One message may be the cause: each message is handled alone, so that this one does not delay the others.
            return [one for claim in group for one in await self._handle(batch, [claim])]
        return [(result, began)] * len(group)

    async def _acquire_slot(self) -> bool:
        """Wait for a free slot; False if no further handler may start."""
        if self._slots.locked() and not self._stopping.is_set():
            free, stopping = asyncio.ensure_future(self._slots.acquire()), asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait((free, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not free.done():
                free.cancel()
            elif self._stopping.is_set():
                self._slots.release()
            return not self._stopping.is_set()
        return not self._stopping.is_set() and await self._slots.acquire()

    async def _attempt(self, batch: Batch, group: Sequence[Claim]) -> PublishResult:
        task = asyncio.create_task(self._result_of(self._run(batch, group), group))
        self._running.add(task)
        task.add_done_callback(self._free_slot)
        cut = asyncio.ensure_future(self._cut.wait())
        done, _ = await asyncio.wait((task, cut), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if task in done:
            # A handler that cancels itself counts as failed.
            return self._failure(group, asyncio.CancelledError()) if task.cancelled() else task.result()
        task.cancel()
        await asyncio.wait((task,), timeout=CANCEL_SECONDS)
        if done:
            return LOST
        self._left_locked()
        for claim in group:
            self._emit(HandlerOverdue(claim.id, self._seconds or 0.0))
        if not task.done():
            self._ignoring_cancel.add(task)
            if len(self._ignoring_cancel) == self._concurrency:
                self._stuck()
        return OVERDUE

    def _free_slot(self, task: asyncio.Task[PublishResult]) -> None:
        """Free the slot only when the handler has really ended: a worker never runs more handlers than its concurrency."""
        self._running.discard(task)
        self._ignoring_cancel.discard(task)
        self._slots.release()

    async def _result_of(self, work: Coroutine[Any, Any, None], group: Sequence[Claim]) -> PublishResult:
        try:
            await work
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The handler itself was not cancelled, only something that it awaited.
            return self._failure(group, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of a handler is a failed attempt
            return self._failure(group, error)
        return verdict(None)

    def _failure(self, group: Sequence[Claim], error: BaseException) -> PublishResult:
        result = verdict(error, package=self._package)
        if result.verdict is Verdict.REFUSED and not isinstance(error, TransientAttemptError):
            self._emit(HandlerFailed(group[0].id, type(error).__name__, result.detail, location(error, self._package), len(group)))
            self._emit(HandlerRaised(group[0].id, type_and_text(error)))
        return result
