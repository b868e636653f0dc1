"""Waits by polling for tables and processes, which send no notification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], Awaitable[bool]], *, every: float) -> None:
    """Return when the condition holds; check it again after `every` seconds."""
    while not await condition():  # noqa: ASYNC110 - tables and processes set no Event
        await asyncio.sleep(every)
