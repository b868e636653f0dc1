"""Waits for tables and processes, which cannot call back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], Awaitable[bool]], *, every: float) -> None:
    """Return when the condition holds; check it again after `every` seconds."""
    while not await condition():  # noqa: ASYNC110 - it is about tables and processes, which set no Event
        await asyncio.sleep(every)
