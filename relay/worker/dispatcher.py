"""Hands claims to a handler, where a relay would hand them to the broker: the engine's publisher of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final

from relay.events import NOBODY, Sink
from relay.events.inbox import HandlerFailed, HandlerOverdue, HandlerRaised
from relay.message import Batch, Claim, Portion, PublishResult, Verdict
from relay.worker.outcomes import LATE, LOST, OVERDUE, STOPPED, TransientAttemptError, place, verdict, words

PATIENCE: Final = 0.02
"""Seconds in which results are gathered for one settle, after the first of them."""
CANCEL_SECONDS: Final = 1.0
"""Seconds that a handler has to end after its time is over."""


Run = Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]
"""Handles some claims of a batch at once; raises what the handler raises."""


class Dispatcher:
    """The publisher that the engine of a worker talks to; see `relay.ports.Publisher`.

    Args:
        run: handles claims.
        group: how many claims are handed over together.
        concurrency: handlers that run at the same time.
        seconds: how long one may take; None for as long as it likes, its locks are renewed meanwhile.
        left_locked: called when a message stays locked because its handler did not end in time.
        stuck: called when every handler that may run has not heeded its end: nothing can be handled any more.
        emit: hears of handlers that fail or do not end.
        home: the package of the handler.
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
        home: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._group = group
        self._slots = asyncio.Semaphore(concurrency)
        self._seconds = seconds
        self._left_locked = left_locked
        self._stuck = stuck
        self._concurrency = concurrency
        self._heedless: set[asyncio.Task[PublishResult]] = set()
        self._emit = emit
        self._home = home
        self._clock = clock
        self._running: set[asyncio.Task[PublishResult]] = set()
        self._holding = asyncio.Event()
        self._cutting = asyncio.Event()

    ready = True

    async def start(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Cancel what still runs; legal at any time, and again."""
        self.cut()
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=CANCEL_SECONDS)

    async def wait_ready(self) -> None:
        """See `relay.ports.Publisher`."""

    def silent(self) -> dict[str, float]:
        """Nothing is silent: a handler may take its time, and locks are renewed."""
        return {}

    @property
    def hangs(self) -> bool:
        """A handler still runs, although nobody waits for it."""
        return bool(self._running)

    def stop_writing(self) -> None:
        """Begin nothing more; what runs may end."""
        self._holding.set()

    def cut(self) -> None:
        """Wait for no handler any more."""
        self._holding.set()
        self._cutting.set()

    async def publish(self, batch: Batch) -> AsyncGenerator[Portion, None]:
        """See `relay.ports.Publisher`; a portion is what has ended within `PATIENCE` of its first."""
        claims = batch.claims
        groups = [claims[at : at + self._group] for at in range(0, len(claims), self._group)]
        waiting = {asyncio.create_task(self._handle(batch, group)): group for group in groups}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if len(done) < len(waiting):
                    done, _ = await asyncio.wait(waiting, timeout=PATIENCE)
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
        """One result for each claim of a group, with when its handler began; 0.0 for never. Never raises."""
        if not await self._slot():
            return [(STOPPED, 0.0)] * len(group)
        began = self._clock()
        late = any(batch.is_overdue(claim, began) for claim in group)
        if late:
            self._slots.release()
        result, began = (LATE, 0.0) if late else (await self._attempt(batch, group), began)
        if len(group) > 1 and (late or result.verdict in (Verdict.REFUSED, Verdict.INVALID)):
            # One of them may be the cause: each goes by itself, so that its neighbours are not held up.
            return [one for claim in group for one in await self._handle(batch, [claim])]
        return [(result, began)] * len(group)

    async def _slot(self) -> bool:
        """Wait for one; False if nothing may begin any more."""
        if self._slots.locked() and not self._holding.is_set():
            free, hold = asyncio.ensure_future(self._slots.acquire()), asyncio.ensure_future(self._holding.wait())
            await asyncio.wait((free, hold), return_when=asyncio.FIRST_COMPLETED)
            hold.cancel()
            if not free.done():
                free.cancel()
            elif self._holding.is_set():
                self._slots.release()
            return not self._holding.is_set()
        return not self._holding.is_set() and await self._slots.acquire()

    async def _attempt(self, batch: Batch, group: Sequence[Claim]) -> PublishResult:
        task = asyncio.create_task(self._guarded(self._run(batch, group), group))
        self._running.add(task)
        task.add_done_callback(self._ended)
        cut = asyncio.ensure_future(self._cutting.wait())
        done, _ = await asyncio.wait((task, cut), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if task in done:
            # One that cancels itself has failed like any other.
            return self._told(group, asyncio.CancelledError()) if task.cancelled() else task.result()
        task.cancel()
        await asyncio.wait((task,), timeout=CANCEL_SECONDS)
        if done:
            return LOST
        self._left_locked()
        for claim in group:
            self._emit(HandlerOverdue(claim.id, self._seconds or 0.0))
        if not task.done():
            self._heedless.add(task)
            if len(self._heedless) == self._concurrency:
                self._stuck()
        return OVERDUE

    def _ended(self, task: asyncio.Task[PublishResult]) -> None:
        """One that does not heed its end keeps its slot until it comes to one: a worker runs no more handlers than it may."""
        self._running.discard(task)
        self._heedless.discard(task)
        self._slots.release()

    async def _guarded(self, work: Coroutine[Any, Any, None], group: Sequence[Claim]) -> PublishResult:
        try:
            await work
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the handler awaited was cancelled, not the handler.
            return self._told(group, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a handler raises is the message's
            return self._told(group, error)
        return verdict(None)

    def _told(self, group: Sequence[Claim], error: BaseException) -> PublishResult:
        result = verdict(error, home=self._home)
        if result.verdict is Verdict.REFUSED and not isinstance(error, TransientAttemptError):
            self._emit(HandlerFailed(group[0].id, type(error).__name__, result.detail, place(error, self._home), len(group)))
            self._emit(HandlerRaised(group[0].id, words(error)))
        return result
