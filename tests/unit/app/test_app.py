"""What the composition root hands to whom."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from contextlib import suppress
from typing import Any

import pytest

from relay import events
from relay.app.idle_exit import leave_when_idle
from relay.app.outbox import compose
from relay.app.relay import Relay
from relay.app.shutdown import Shutdown
from relay.claims.intake import Intake
from relay.claims.poll_backoff import PollBackoff
from relay.config.settings import load
from relay.errors import StoreError
from relay.message import Batch


@pytest.fixture
def relay() -> Relay:
    """A relay that has connected to nothing yet."""
    return compose(load({"RELAY_POLL_INTERVAL": "3600"}, None), events.NOBODY, lambda _: None)


def at_rest(relay: Relay) -> Intake:
    """Its intake, of which every source rests for an hour."""
    for source in relay.intake._turns:
        source.look_at, source.gap = math.inf, 3600.0
    return relay.intake


def looked_at(intake: Intake) -> set[PollBackoff]:
    """Sources that are asked at once."""
    return {source for source in intake._turns if source.look_at == 0.0 and not source.rests(3600.0)}


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_claim_puts_back_is_looked_for_at_once(relay: Relay, *, fails: bool) -> None:
    """By every source that may find it, also where the claim fails in the end."""

    async def claim(_room: int, _room_bytes: int) -> tuple[Batch | None, bool]:
        relay.base.store._deferred._on_put_back()
        if fails:
            raise StoreError("a lock of somebody else", in_passing=True)
        return None, False

    intake = at_rest(relay)
    intake._limited.claim, intake._limited.look_at = claim, 0.0
    with suppress(StoreError):
        await intake.claim(1, 1)
    assert {intake._due, intake._waiting, intake._suspect} == looked_at(intake)


def test_what_is_heard_is_looked_for_at_once(relay: Relay) -> None:
    """By every source of what is new, and the engine does not sleep past it."""
    intake = at_rest(relay)
    relay.listener._on_hint()
    assert {intake._fresh, intake._ordered, intake._limited} == looked_at(intake)
    assert relay.base.nudged.is_set()


def connected(relay: Relay) -> None:
    """The broker is there."""
    publisher: Any = relay.publisher
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


def with_engine(relay: Relay, engine: Any) -> Relay:
    """The relay with another engine, which its shutdown stops."""
    shutdown = Shutdown(
        stop=relay.base.stop,
        drain=engine.stop,
        cut=None,
        seconds=lambda: 0.0,
        in_flight=lambda: 0,
        abandon=lambda _: None,
        emit=relay.base.emit,
    )
    return dataclasses.replace(relay, engine=engine, shutdown=shutdown)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_an_idle_relay_leaves_as_soon_as_no_claim_is_unanswered(relay: Relay, seconds: float) -> None:
    """Who looks for messages again and again is idle all the same: only what they bring is work."""
    engine = Claiming(9)
    connected(relay)
    relay.base.emit(events.Started(1, "relay", "public"))
    async with asyncio.timeout(20):
        await leave_when_idle(seconds, with_engine(relay, engine))
    assert (10, 1) == (engine.looked, engine.stopped)


@pytest.mark.parametrize("away", ["broker", "database"])
async def test_a_relay_without_its_servers_is_not_idle(relay: Relay, away: str) -> None:
    """Neither while one is away, nor before the time has passed since it was back."""
    engine = Claiming(0)
    relay.base.emit(events.Started(1, "relay", "public"))
    if away == "database":
        connected(relay)
        relay.base.emit(events.DatabaseDown("PostgreSQL does not answer.", 1))
    leaving = asyncio.create_task(leave_when_idle(0.3, with_engine(relay, engine)))
    assert not (await asyncio.wait((leaving,), timeout=1))[0]
    back = asyncio.get_running_loop().time()
    connected(relay)
    relay.base.emit(events.DatabaseUp())
    async with asyncio.timeout(20):
        await leaving
    assert 0.2 < asyncio.get_running_loop().time() - back
    assert 1 == engine.stopped


def test_a_relay_tells_the_database_why_it_cannot_work(relay: Relay) -> None:
    """What readiness names, for who has nothing but `relay status`."""
    relay.base.emit(events.DatabaseDown("The relay's role lacks a permission.", 1))
    state: Any = relay.maintenance._state()
    assert "The relay's role lacks a permission." == state["reasons"]["database"]
