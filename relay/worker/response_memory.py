"""How much of what handlers returned may be in memory as text; no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from relay.memory import of_text
from relay.worker.response import HandlerResponse

PATIENCE: Final = 30.0
"""Seconds after which an answer waits no more: the transaction that it belongs to may hold what one ahead of it waits for."""


class ResponseMemory:
    """Answers as they are written, each in its turn.

    Args:
        most: bytes of all of them; the last may reach beyond, so that one always fits.

    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def made(self, make: Callable[[], HandlerResponse]) -> AsyncIterator[HandlerResponse]:
        """Wait for room, make an answer, and keep it until the block ends."""
        await self._room()
        answer = make()
        size = of_text(answer.text)
        self._size += size
        try:
            yield answer
        finally:
            self._size -= size
            self._freed.set()

    async def _room(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._turn:
                while self._size >= self._most:
                    self._freed.clear()
                    await self._freed.wait()
