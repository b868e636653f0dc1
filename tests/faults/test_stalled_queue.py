"""A quorum queue that confirms nothing, as one without its majority: messages of other exchanges go out meanwhile."""

from __future__ import annotations

import pytest

from tests.support.database.queue import until
from tests.support.faults.scene import Scene

COUNT = 8_000
"""Messages for it: twice as many as the relay holds at a time, and twenty times as many as RabbitMQ lets one channel have open."""
FEW = 20
FLOOD = "INSERT INTO queue_message (exchange, routing_key) SELECT %s, %s FROM generate_series(1, %s)"


@pytest.mark.fault(7, repeats=3)
@pytest.mark.ids("A10", "C9")
async def test_a_queue_that_confirms_nothing_holds_up_no_other_exchange(scene: Scene, unique: str) -> None:
    """One message after the other comes through while half of the relay's window waits for the queue; later everything has come."""
    stalled = await scene.topology.declare(f"{unique}.stalled", f"{unique}.stalled", arguments={"x-queue-type": "quorum"})
    scene.others.append(stalled.queue)
    relay = await scene.start()
    leader = f"whereis('%2F_{stalled.queue}')"
    scene.broker.ctl("eval", f"sys:suspend({leader}, 20000).")
    await scene.queue.sql(FLOOD, stalled.exchange, stalled.routing_key, COUNT)
    await until(lambda: scene.holds(relay, 2_000))

    for number in range(1, FEW + 1):
        await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
        await until(lambda number=number: scene.topology.has(scene.inbox.queue, number), seconds=10)  # type: ignore[misc]

    async def all_others_are_settled() -> bool:
        return await scene.queue.waiting() == COUNT

    await until(all_others_are_settled, seconds=10)

    scene.broker.ctl("eval", f"sys:resume({leader}).")
    await until(lambda: scene.topology.has(stalled.queue, COUNT), seconds=60)
    await scene.queue.settled()
    assert 0 == await relay.stop()
