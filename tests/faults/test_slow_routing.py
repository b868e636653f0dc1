"""Messages that the broker routes slowly: those of other exchanges go out as if they were not there."""

from __future__ import annotations

import pytest

from tests.support.broker.topology import Declared
from tests.support.database.queue import until
from tests.support.faults.scene import Scene

COUNT = 1200
"""Messages that are routed slowly: three times as many as a channel may have open before RabbitMQ reads nothing more."""
KEY = ".".join(["a", "b"] * 60)
PATTERN = "#.a.#.b"
"""RabbitMQ follows each way in which a pattern with several `#` fits: 10 to 60 ms for a message. RabbitMQ 4.3 takes at most two."""
FEW = COUNT // 4
FLOOD = """
    INSERT INTO queue_message (exchange, routing_key, content)
    SELECT %s, %s, jsonb_build_object('number', n) FROM generate_series(1, %s) AS n
"""


async def slow(scene: Scene, unique: str) -> Declared:
    """Declare an exchange and a queue behind a pattern that costs the broker much."""
    made = await scene.topology.declare(f"{unique}.slow", f"{unique}.slow", routing_key=PATTERN, kind="topic")
    scene.others.append(made.queue)
    return made


@pytest.mark.fault(13, repeats=3)
@pytest.mark.ids("A10", "C9")
async def test_messages_that_are_routed_slowly_delay_no_message_of_another(scene: Scene, unique: str) -> None:
    """Each of some messages comes before a quarter of them was routed; in the end all have come."""
    made = await slow(scene, unique)
    relay = await scene.start()
    await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
    await until(lambda: scene.topology.has(scene.inbox.queue, 1))

    await scene.queue.sql(FLOOD, made.exchange, KEY, COUNT)
    await until(lambda: scene.topology.has(made.queue, 1))
    for number in range(2, 5):
        await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
        await until(lambda number=number: scene.topology.has(scene.inbox.queue, number))  # type: ignore[misc]
        assert await scene.topology.waiting(made.queue) < FEW

    await until(lambda: scene.topology.has(made.queue, COUNT), seconds=300)
    await scene.queue.settled()
    assert 0 == await relay.stop()
