"""Several relays on one queue: they come and go as they like, and one is suspended while the others continue."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN, UNHURRIED, producing
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import metric, shows

NAME = "relay"
AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND state <> 'idle'"


async def shown(scene: Scene) -> list[dict[str, Any]]:
    """The relays that `relay status` shows."""
    return list(json.loads(await scene.relays.command("status", "--json", database=scene.queue.url))["relays"])


@pytest.mark.fault(16, repeats=20)
@pytest.mark.ids("A6", "A18", "C11", "C17", "D9")
async def test_relays_of_one_name_come_and_go(scene: Scene, *, long_form: bool) -> None:
    """Two to eight (in the short form four) of one name, started and stopped at random: keys in order, and nothing goes out twice."""
    await scene.configure(lock_seconds=UNHURRIED)
    most, moves = (8, 12) if long_form else (4, 4)
    running = list(await asyncio.gather(*(scene.start(NAME, **SMALL_SEEN) for _ in range(2))))
    gone: list[RelayProcess] = []
    async with producing(scene):
        for _ in range(moves):
            await asyncio.sleep(scene.chance.uniform(0, 0.5))  # the random moment
            if len(running) == 2 or (len(running) < most and scene.chance.random() < 0.6):
                running.append(await scene.start(NAME, **SMALL_SEEN))
            else:
                gone.append(running.pop(scene.chance.randrange(len(running))))
                assert 0 == await gone[-1].stop()
                assert [] == await scene.held_by(gone[-1])
        running.append(await scene.start(NAME, **SMALL_SEEN))
        await shows(running[-1], "relay_queue_relays_alive", len(running))
        assert {(relay.id, NAME) for relay in running} == {(row["id"], row["name"]) for row in await shown(scene) if row["alive"]}

    report = await scene.check(*running)
    assert 0 == report.duplicates
    assert [] == [line for relay in (*running, *gone) for line in (*relay.of("lock_lost"), *relay.of("locks_swept"))]


@pytest.mark.fault(15, repeats=20)
@pytest.mark.ids("A11", "B9")
async def test_a_relay_that_stands_still_among_others_is_replaced(scene: Scene) -> None:
    """Stopped in the middle of publishing for longer than its locks: the other one sends what it held, and it says so when it wakes up."""
    other = await scene.start("other", **SMALL_SEEN)
    async with Proxy.before(scene.broker.url) as proxy:
        sleeper = await scene.start("sleeper", broker=proxy.url(scene.broker.url), **SMALL_SEEN)
        async with producing(scene):
            await asyncio.sleep(scene.chance.uniform(0, 1))  # the random moment
            proxy.hold_answers()
            await until(lambda: scene.holds(sleeper, 10))
            sleeper.send(signal.SIGSTOP)
            await until(lambda: is_at_rest(scene, sleeper))
            scene.producer.fault(await scene.held_by(sleeper))
            await until(lambda: holds_nothing(scene, sleeper))
            assert {"other": True, "sleeper": False} == {row["name"]: row["alive"] for row in await shown(scene)}
            proxy.heal()
            sleeper.send(signal.SIGCONT)
            await sleeper.logged("lock_lost")
        await other.logged("locks_swept")
        assert 0 < await metric(sleeper, "relay_lock_lost_total")
        assert 0 < await metric(other, "relay_swept_total", to="queue")
        await scene.check(other, sleeper)


async def is_at_rest(scene: Scene, relay: RelayProcess) -> bool:
    """No statement of this relay still runs."""
    return not await scene.queue.value(AT_WORK, f"outbox-relay/{relay.name} %")


async def holds_nothing(scene: Scene, relay: RelayProcess) -> bool:
    """The locks of this relay are gone."""
    return not await scene.holds(relay)
