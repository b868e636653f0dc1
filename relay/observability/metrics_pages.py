"""Renders metrics pages one after the other, at a bounded cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_FACTOR: Final = 9
"""The pause after a page, as a multiple of its rendering time: with short pages, a flood of scrapes uses a tenth of a processor."""
MAX_PAUSE: Final = 1.0
"""Longest pause in seconds."""
MAX_FORMATS: Final = 4
"""Most Accept headers for which pages wait at the same time. A client may invent any number of headers, so further headers get the plain
page."""

Page = tuple[bytes, str]
"""A body and its content type."""


class Pages:
    """Renders pages; requests that wait for the same page share it.

    Args:
        render: returns the page for an Accept header; it must not block the event loop.

    """

    def __init__(self, render: Callable[[str], Awaitable[Page]]) -> None:
        self._render = render
        self._turn = asyncio.Lock()
        self._next: dict[str, asyncio.Task[Page]] = {}
        """Pages that wait to be rendered, by Accept header."""
        self._tasks: set[asyncio.Task[Page]] = set()
        self._free_at = 0.0

    async def page(self, accept: str) -> Page:
        """A page whose rendering starts after this call."""
        accept = accept if accept in self._next or len(self._next) < MAX_FORMATS else ""
        task = self._next.get(accept)
        if task is None:
            task = self._next[accept] = asyncio.create_task(self._in_turn(accept), name="metrics")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel all pages."""
        for task in self._tasks:
            task.cancel()

    async def _in_turn(self, accept: str) -> Page:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
            del self._next[accept]
            began = time.monotonic()
            try:
                return await self._render(accept)
            finally:
                ended = time.monotonic()
                self._free_at = ended + min(PAUSE_FACTOR * (ended - began), MAX_PAUSE)
