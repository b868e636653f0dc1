"""Limits the memory that answers take as text. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from relay.memory import of_text
from relay.worker.response import HandlerResponse

MAX_WAIT: Final = 30.0
"""Seconds after which an answer stops waiting for memory: its own transaction may hold a lock for which an earlier answer waits."""


class ResponseMemory:
    """Admits answers in turn while memory is free.

    Args:
        max_bytes: limit for all answers together. The last admitted answer may exceed the limit, so that one answer always fits.

    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def admit(self, make: Callable[[], HandlerResponse]) -> AsyncIterator[HandlerResponse]:
        """Wait for free memory, make the answer, and count its bytes until the block ends."""
        await self._wait_for_memory()
        answer = make()
        size = of_text(answer.text)
        self._size += size
        try:
            yield answer
        finally:
            self._size -= size
            self._freed.set()

    async def _wait_for_memory(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT), self._turn:
                while self._size >= self._max_bytes:
                    self._freed.clear()
                    await self._freed.wait()
