"""What the composition root hands to whom."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import pytest

from relay import events
from relay.app.outbox import Relay
from relay.config.settings import load


@pytest.fixture
def relay() -> Relay:
    """A relay that has connected to nothing yet."""
    return Relay(load({"RELAY_POLL_INTERVAL": "3600"}, None))


def test_what_a_claim_puts_back_is_looked_for_at_once(relay: Relay) -> None:
    """By every source that may find it, where all of them rest for an hour."""
    intake = relay._intake
    for source in intake._turns:
        source.look_at, source.gap = math.inf, 3600.0
    relay._store._shelf._on_put_back()
    looked_at = {source for source in intake._turns if source.look_at == 0.0 and not source.rests(3600.0)}
    assert {intake._due, intake._waiting, intake._suspect} == looked_at


def connected(relay: Relay) -> None:
    """The broker is there."""
    publisher: Any = relay._publisher
    publisher._ready.set()


class Claiming:
    """An engine that has a claim under way at the first looks, and then by turns."""

    def __init__(self, first: int) -> None:
        self._looks = itertools.chain([True] * first, itertools.cycle([False, True]))
        self.looked = 0
        self.stopped = 0

    @property
    def claiming(self) -> bool:
        """Whether a claim is unanswered."""
        self.looked += 1
        return next(self._looks)

    def stop(self) -> None:
        """Count it."""
        self.stopped += 1


@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_an_idle_relay_leaves_as_soon_as_no_claim_is_unanswered(relay: Relay, seconds: float) -> None:
    """Who looks for messages again and again is idle all the same: only what they bring is work."""
    engine: Any = Claiming(9)
    connected(relay)
    relay._emit(events.Started(1, "relay", "public"))
    async with asyncio.timeout(20):
        await relay._leave_when_idle(engine, seconds)
    assert (10, 1) == (engine.looked, engine.stopped)


@pytest.mark.parametrize("away", ["broker", "database"])
async def test_a_relay_without_its_servers_is_not_idle(relay: Relay, away: str) -> None:
    """Neither while one is away, nor before the time has passed since it was back."""
    engine: Any = Claiming(0)
    relay._emit(events.Started(1, "relay", "public"))
    if away == "database":
        connected(relay)
        relay._emit(events.DatabaseDown("PostgreSQL does not answer.", 1))
    leaving = asyncio.create_task(relay._leave_when_idle(engine, 0.3))
    assert not (await asyncio.wait((leaving,), timeout=1))[0]
    back = asyncio.get_running_loop().time()
    connected(relay)
    relay._emit(events.DatabaseUp())
    async with asyncio.timeout(20):
        await leaving
    assert 0.2 < asyncio.get_running_loop().time() - back
    assert 1 == engine.stopped


def test_a_relay_tells_the_database_why_it_cannot_work(relay: Relay) -> None:
    """What readiness names, for who has nothing but `relay status`."""
    relay._emit(events.DatabaseDown("The relay's role lacks a permission.", 1))
    assert "The relay's role lacks a permission." == relay._state(relay._publisher, relay._listener)["reasons"]["database"]  # type: ignore[index]
