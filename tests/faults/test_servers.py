"""PostgreSQL and RabbitMQ that die, hang up or block under load."""

from __future__ import annotations

import asyncio
import time

import pytest

from relay import devservers
from tests.support.database.queue import until
from tests.support.faults.play import SMALL, WINDOW, play, tells
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.scrape import HTTP, shows

OUTLAST = 8
"""Seconds of a lock that outlasts the restart of a database: it is renewed when half of them are over."""
MOST_ATTEMPTS = "SELECT max(attempts) FROM queue_message_archive"


@pytest.mark.fault(7, repeats=20)
@pytest.mark.ids("C7", "C9", "C14")
async def test_a_killed_broker_loses_nothing(scene: Scene) -> None:
    """The broker dies under load and comes back: everything arrives, twice at most what was in flight, and no attempt is counted."""
    scene.broker.persist_topology()
    relay = await scene.start(**SMALL, **HTTP)

    async def fault() -> None:
        scene.broker.freeze()
        await until(lambda: scene.holds(relay, 50))  # so that some were written and never read
        scene.broker.crash()
        scene.producer.fault(WINDOW)
        await relay.logged("broker_down")
        await shows(relay, "relay_broker_up", 0)
        await until(lambda: tells(scene, f"{relay.name}: the broker is down or blocked"))
        await asyncio.to_thread(scene.broker.start)
        await relay.logged("broker_up", 2)
        await shows(relay, "relay_broker_up", 1)

    await play(scene, fault, relay)
    await scene.check_after_restart(relay)
    assert 1 == await scene.queue.value(MOST_ATTEMPTS)


@pytest.mark.fault(7, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C7", "C9")
async def test_a_broker_that_restarts_in_order_loses_nothing(scene: Scene) -> None:
    """As a killed one, with messages under way that it has not read."""
    async with Proxy.before(scene.broker.url) as proxy:
        relay = await scene.start(broker=proxy.url(scene.broker.url), **SMALL)

        async def fault() -> None:
            proxy.hold_requests()
            await until(lambda: scene.holds(relay, 50))
            scene.producer.fault(WINDOW)
            await asyncio.to_thread(scene.broker.restart)
            proxy.heal()
            await relay.logged("broker_up", 2)

        await play(scene, fault, relay)
        await scene.check_after_restart(relay)
    assert 1 == await scene.queue.value(MOST_ATTEMPTS)


@pytest.mark.fault(4, repeats=20)
@pytest.mark.ids("A17", "C9")
@pytest.mark.parametrize("how", ["crash", pytest.param("restart", marks=pytest.mark.long_only)])
async def test_a_database_that_dies_or_restarts_loses_nothing(scene: Scene, own_postgres: devservers.Postgres, how: str) -> None:
    """Outcomes are written when it is back, so that nothing is sent twice unless it was away for longer than the locks last."""
    await scene.queue.sql("SELECT queue_message_config_set('lock_seconds', %s)", str(OUTLAST))
    relay = await scene.start(**SMALL, **HTTP)
    away = 0.0

    async def fault() -> None:
        nonlocal away
        began = time.monotonic()
        await asyncio.to_thread(getattr(own_postgres, how))
        scene.producer.fault(WINDOW)
        if how == "crash":
            await relay.logged("database_down")
            await shows(relay, "relay_database_up", 0)
            with pytest.raises(AssertionError, match="PostgreSQL does not answer"):
                await scene.status()
        await asyncio.to_thread(own_postgres.start)
        await relay.logged("listen_up", 2)
        await shows(relay, "relay_database_up", 1)
        away = time.monotonic() - began

    await play(scene, fault, relay)
    report = await scene.check_with_new_eyes(relay)
    assert 0 == report.duplicates or away > OUTLAST / 2, away


@pytest.mark.fault(5, repeats=20)
@pytest.mark.ids("A17", "C9")
async def test_terminated_backends_cost_no_duplicate(scene: Scene) -> None:
    """A settle that got no answer is tried again as a settle: nothing is lost and nothing sent twice."""
    await scene.configure(lock_seconds=30)
    relay = await scene.start(**SMALL)
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%'"

    async def fault() -> None:
        for count in range(1, 4):
            assert len(await scene.queue.sql(terminate)) >= 2
            await relay.logged("listen_up", count + 1)

    await play(scene, fault, relay)
    report = await scene.check(relay)
    assert 0 == report.duplicates
