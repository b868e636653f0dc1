"""Thousands of exchanges that do not exist, each with a message: what goes to other exchanges goes out as if they were not there."""

from __future__ import annotations

import time

import pytest

from tests.faults.conftest import HAD_TIME
from tests.support.broker import Declared
from tests.support.fault_scene import Scene
from tests.support.queue import until

MISSING = 5000
"""More than a relay has in hand at once."""
BEHIND = 60.0
"""Seconds in which a message arrives that stands behind all of them in the queue."""
ROUNDS = 5
"""Messages to each exchange that is there, one after another, while the missing ones are tried again."""
FLOOD = "INSERT INTO queue_message (exchange, routing_key) SELECT %s || '.missing.' || n, 'key' FROM generate_series(1, %s) AS n"


@pytest.fixture
def prompt(*, long_form: bool) -> float:
    """Seconds that a message may take: as promised in the long form on a machine that has time."""
    return 2.0 if long_form and HAD_TIME else 15.0


async def arrives(scene: Scene, made: Declared, seconds: float) -> None:
    """Send a message; it comes within that time."""
    before = await scene.topology.waiting(made.queue)
    began = time.monotonic()
    await scene.queue.insert(1, exchange=made.exchange, routing_key=made.routing_key)
    await until(lambda: scene.topology.has(made.queue, before + 1), seconds=seconds)
    assert time.monotonic() - began < seconds


@pytest.mark.fault(13, repeats=5)
@pytest.mark.ids("A10", "C9", "C15")
async def test_thousands_of_missing_exchanges_delay_no_message_of_another(scene: Scene, unique: str, prompt: float) -> None:
    """Each is tried, in the order of the queue; all the while a known exchange has its messages, and so has a new one."""
    relay = await scene.start()
    await arrives(scene, scene.inbox, 30)
    await scene.queue.sql(FLOOD, unique, MISSING)
    await arrives(scene, scene.inbox, BEHIND)
    for number in range(ROUNDS):
        await arrives(scene, scene.inbox, prompt)
        new = await scene.topology.declare(f"{unique}.new.{number}", f"{unique}.new.{number}")
        scene.others.append(new.queue)
        await arrives(scene, new, prompt)

    async def they_alone_are_left() -> bool:
        return MISSING == await scene.queue.waiting()

    await until(they_alone_are_left)
    assert 1 == len(relay.of("broker_up"))
    assert 0 == await relay.stop()
    await scene.queue.sql("DELETE FROM queue_message")
