"""How the relay waits: growing pauses between tries, and waits that end early."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def pause(failures: int, *, first: float = 0.1, longest: float = 5.0) -> float:
    """Seconds before the next try: doubled from `first` up to `longest`, then shortened at random by up to half to spread relays out."""
    plain = min(first * 2.0 ** min(max(failures, 1) - 1, 30), longest)
    return plain * (1 - random.random() / 2)  # noqa: S311 - jitter, not cryptography


async def unless(event: asyncio.Event, waiting: Coroutine[Any, Any, T]) -> T | None:
    """Wait for a result until the event is set. Then cancel `waiting`, and return None if it ended without a result."""
    wait = asyncio.ensure_future(waiting)
    end = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((wait, end), return_when=asyncio.FIRST_COMPLETED)
    finally:
        wait.cancel()
        end.cancel()
    await asyncio.gather(wait, end, return_exceptions=True)
    return None if wait.cancelled() else wait.result()
