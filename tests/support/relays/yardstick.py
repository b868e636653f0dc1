"""A unit of processor time which a busy machine stretches as much as the work that is measured meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

VALUE = {"id": 1, "names": ["x"] * 20, "inner": {"pad": "e" * 50}}
TRIPS = 200
PAUSE = 0.05
"""Seconds between portions of round trips, each of which takes one to three milliseconds."""


class Yardstick:
    """Round trips of a small value through JSON, in small portions while the work goes on."""

    def __init__(self) -> None:
        self._trips, self._used = 0, 0.0

    async def __aenter__(self) -> Self:
        self._portion()
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def seconds(self) -> float:
        """Processor time of one round trip so far."""
        return self._used / self._trips

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            self._portion()

    def _portion(self) -> None:
        began = time.thread_time()
        for _ in range(TRIPS):
            json.loads(json.dumps(VALUE))
        self._used += time.thread_time() - began
        self._trips += TRIPS
