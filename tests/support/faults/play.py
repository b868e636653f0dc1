"""How a fault is played: load before, during and after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP

WINDOW = 500
SMALL = {"RELAY_WINDOW": str(WINDOW), "RELAY_BATCH_SIZE": "100"}
"""What a relay may have in flight, and so send twice, at a fault."""
SMALL_SEEN = {**SMALL, **HTTP}
"""The same, of a relay that shows its pages."""
UNHURRIED = 30
"""Seconds of locks that no busy machine lets expire."""
FLOODS = ("database_down", "broker_down", "settle_failed", "maintenance_failed", "listen_down")
"""Events that a lasting fault could write without end."""


@asynccontextmanager
async def producing(scene: Scene) -> AsyncIterator[None]:
    """Load, until the end of the block."""
    task = asyncio.create_task(scene.producer.run())
    yield
    scene.producer.stop()
    await task


async def play(scene: Scene, fault: Callable[[], Awaitable[None]], *relays: RelayProcess) -> None:
    """Load, the fault at a random moment, and load again until a good deal was committed after it."""
    async with producing(scene):
        await asyncio.sleep(scene.chance.uniform(0.3, 1.0))  # the random moment
        await fault()
        before = scene.producer.committed
        await until(lambda: grown(scene, before))
    for relay in relays:
        expect_quiet_log(relay)


async def grown(scene: Scene, before: int) -> bool:
    """The producer continues to commit."""
    return scene.producer.committed > before + 200


async def tells(scene: Scene, sentence: str) -> bool:
    """Whether `relay status` says so; it knows what a relay reported last."""
    return sentence in await scene.status()


def expect_quiet_log(relay: RelayProcess) -> None:
    """At most one line a second of each kind, and no traceback."""
    assert not [line for line in relay.lines if "text" in line or "where" in line], relay.lines
    for kind in FLOODS:
        seconds = [line["timestamp"][:19] for line in relay.of(kind)]
        assert all(seconds.count(second) <= 2 for second in seconds), relay.of(kind)
