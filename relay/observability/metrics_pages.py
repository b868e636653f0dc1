"""Pages of metrics for whoever scrapes: rendered one after the other, at a bounded cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

SHARE: Final = 9
"""Times as long as a page took to render, before the next one is: a flood of scrapes costs a tenth of a processor while pages are short."""
MOST_PAUSE: Final = 1.0
"""Seconds between two pages at the most."""
MOST_FORMATS: Final = 4
"""Accept headers that are told apart at a time, as a client may think up any number: those beyond get the plain page."""

Page = tuple[bytes, str]
"""A body and its content type."""


class Pages:
    """Requests that wait for the same page share it.

    Args:
        render: the page for an Accept header; it must not hold up the loop.

    """

    def __init__(self, render: Callable[[str], Awaitable[Page]]) -> None:
        self._render = render
        self._turn = asyncio.Lock()
        self._next: dict[str, asyncio.Task[Page]] = {}
        """Pages that are not being rendered yet, by Accept header: they will show what has happened until then."""
        self._tasks: set[asyncio.Task[Page]] = set()
        self._free_at = 0.0

    async def page(self, accept: str) -> Page:
        """A page that begins to be rendered from now on."""
        accept = accept if accept in self._next or len(self._next) < MOST_FORMATS else ""
        task = self._next.get(accept)
        if task is None:
            task = self._next[accept] = asyncio.create_task(self._in_turn(accept), name="metrics")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def close(self) -> None:
        """Render nothing more."""
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
                self._free_at = ended + min(SHARE * (ended - began), MOST_PAUSE)
