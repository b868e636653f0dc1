"""A relay that dies under load."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.conftest import Scene
from tests.support.queue import until

KILLS = 4
MANY = 1000
"""Half of a window: as much as one exchange gets while its broker is silent."""


@pytest.mark.ids("A12", "A17", "B9", "C1", "C5", "C7", "C17")
async def test_kill_9_at_random_moments_loses_nothing(scene: Scene) -> None:
    """Nothing lost, nothing from a rollback, keys in order, duplicates only of what was in flight, and that is out again in time."""
    running = [await scene.start(f"relay-{number}") for number in range(2)]
    producing = asyncio.create_task(scene.producer.run())
    for number in range(KILLS):
        await asyncio.sleep(scene.chance.uniform(0.1, 1.5))  # the random moment
        await scene.kill(running.pop(0))
        running.append(await scene.start(f"relay-{number + 2}"))
    scene.producer.stop()
    await producing

    await scene.check(*running)


@pytest.mark.ids("A12", "B9")
async def test_a_thousand_messages_are_out_again_in_time(scene: Scene) -> None:
    """A relay dies over a thousand messages and more: the other one has sent them within the lock time and five seconds."""
    victim = await scene.start("victim")
    scene.broker.freeze()
    await scene.producer.insert(2 * MANY, ordered=False)
    await until(lambda: scene.holds(victim, MANY))
    await scene.kill(victim)
    scene.broker.thaw()
    rescuer = await scene.start("rescuer")

    await scene.check(rescuer)
