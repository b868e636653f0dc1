"""Ends a relay after a number of idle seconds."""

from __future__ import annotations

import asyncio
import time

from relay.app.relay import Relay


async def leave_when_idle(seconds: float, relay: Relay) -> None:
    """Shut down after `seconds` in which all servers were up and no message was in flight, once no claim is under way."""
    window, engine = relay.base.window, relay.engine
    taken, busy_at = window.taken, time.monotonic()
    while time.monotonic() - busy_at < seconds or engine.claiming:
        await asyncio.sleep(min(max(seconds / 10, 0.01), 0.5))
        away = not relay.publisher.ready or "database" in relay.base.health.reasons
        if away or window.messages or window.taken > taken:
            taken, busy_at = window.taken, time.monotonic()
    relay.shutdown.end("idle")
