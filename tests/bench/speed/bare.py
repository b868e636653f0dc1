"""A publisher that does nothing else: the most that the broker takes over one channel with confirms, the yardstick of every rate."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from typing import NamedTuple

import uvloop

from tests.bench.speed.kinds import Kind
from tests.bench.speed.wire import Channel, connect

WINDOW = 1_000
"""Messages without a confirm at the most."""
WINDOW_BYTES = 32 << 20


class Published(NamedTuple):
    """What came of a run."""

    rate: float
    """Messages a second, from the first one's encoding to the last confirm."""
    cpu: float
    """Microseconds of the publisher's CPU for a message."""


async def publish(url: str, kind: Kind, *, rows: int | None = None, window: int = WINDOW) -> Published:
    """Publish such messages in a thread and an event loop of its own."""
    return await asyncio.to_thread(lambda: uvloop.run(_publish(url, kind, rows or kind.rows, window)))


async def _publish(url: str, kind: Kind, rows: int, window: int) -> Published:
    channel = await connect(url)
    try:
        began, cpu = time.perf_counter(), time.thread_time()
        await _send(channel, kind, rows, max(1, min(window, WINDOW_BYTES // kind.size)))
        return Published(rows / (time.perf_counter() - began), (time.thread_time() - cpu) / rows * 1e6)
    finally:
        channel.close()


async def _send(channel: Channel, kind: Kind, rows: int, window: int) -> None:
    templates = itertools.cycle(kind.templates())
    # Any id will do, as long as no two are alike.
    ids = (b"%s%012x" % (prefix, number) for prefix in [str(uuid.uuid4())[:-12].encode()] for number in range(rows))
    sent, least = 0, max(1, window // 4)
    while sent < rows:
        room = min(window - (sent - channel.confirmed), rows - sent)
        if room < min(least, rows - sent):
            await channel.news()
            continue
        channel.write(b"".join([next(ids).join(template) for template in itertools.islice(templates, room)]))
        sent += room
    while channel.confirmed < rows:
        await channel.news()
