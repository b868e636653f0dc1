"""Claims batches for the engine, retries after database failures, and can be cancelled."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from relay import events
from relay.aio import pause, unless
from relay.errors import NewConnectionError, StoreError
from relay.message import Batch
from relay.ports import Intake


class Claimer:
    """Claims batches from the intake; reports a failing database and backs off."""

    def __init__(self, *, intake: Intake, stopping: asyncio.Event, emit: events.Sink) -> None:
        self._intake = intake
        self._stopping = stopping
        self._emit = emit
        self._claiming: asyncio.Future[Batch | None] | None = None
        self._failures = 0
        self.failed = False
        """Whether the last claim failed; if so, the engine claims again without a rest."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch; None when nothing is due, or, after a pause, when the database failed."""
        began, self.failed = time.monotonic(), False
        self._claiming = asyncio.ensure_future(self._intake.claim(room, room_bytes))
        try:
            await asyncio.wait((self._claiming,))
            batch = None if self._claiming.cancelled() else self._claiming.result()
        except NewConnectionError:
            self.failed = True
            self._intake.reset()
            return None
        except StoreError as error:
            await self._back_off(error)
            return None
        finally:
            self._claiming.cancel()
        if self._failures:
            self._failures = 0
            self._emit(events.DatabaseUp())
        if batch:
            self._emit(events.BatchClaimed(batch.source, len(batch.claims), batch.size, time.monotonic() - began))
        return batch

    def cut(self) -> None:
        """Stop waiting for the database; messages that the claim has locked are released when their locks expire."""
        if self._claiming is not None:
            self._claiming.cancel()

    async def _back_off(self, error: StoreError) -> None:
        self.failed = True
        if error.unprintable:
            with suppress(StoreError):
                await self._intake.reject_unprintable()
        if error.in_passing or error.unprintable:
            # The connection still works, so heads and lanes are still valid.
            self._emit(events.MaintenanceFailed("claim", str(error)))
            await unless(self._stopping, asyncio.sleep(pause(1)))
            return
        self._intake.reset()
        self._failures += 1
        self._emit(events.DatabaseDown(str(error), self._failures))
        await unless(self._stopping, asyncio.sleep(pause(self._failures)))
