"""When a relay that is to leave after some idle seconds has been idle for so long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from relay.engine.loop import Engine
from relay.engine.window import Window


async def idle(seconds: float, *, window: Window, engine: Engine, away: Callable[[], bool]) -> None:
    """Return after so many seconds in which nothing was in flight and no server `away`, and not while a claim may bring something."""
    taken, busy_at = window.taken, time.monotonic()
    while time.monotonic() - busy_at < seconds or engine.claiming:
        await asyncio.sleep(min(max(seconds / 10, 0.01), 0.5))
        if away() or window.messages or window.taken > taken:
            taken, busy_at = window.taken, time.monotonic()
