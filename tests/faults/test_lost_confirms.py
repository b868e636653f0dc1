"""An exchange that is deleted after the broker took messages and before the relay hears their confirms."""

from __future__ import annotations

import signal

import pytest

from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.network.lost_confirms import ConfirmsLost

GIVEN_BACK = "SELECT count(*) FROM queue_message WHERE attempts = 0 AND lock_expires_at IS NULL AND last_error LIKE 'confirm_lost:%'"


@pytest.mark.fault(11, repeats=20)
@pytest.mark.ids("C6", "C15", "A27")
async def test_messages_that_arrived_are_not_dead_because_their_exchange_went_before_the_confirm(scene: Scene, unique: str) -> None:
    """With one attempt each they are released, and only the message that found the exchange gone has failed."""
    await scene.configure(max_attempts=1)
    made = await scene.topology.declare(unique, unique)
    there = {"exchange": made.exchange, "routing_key": made.routing_key}
    async with ConfirmsLost.before(scene.broker.url) as proxy:
        relay = await scene.start(broker=proxy.url(scene.broker.url))
        await scene.queue.insert(**there)
        await scene.queue.settled()
        proxy.loses = True
        await scene.queue.insert(20, **there)
        await until(lambda: scene.topology.has(made.queue, 21))
        proxy.hold_answers()
        await scene.topology.delete_exchange(made.exchange)
        [late] = await scene.queue.insert(**there)
        await until(lambda: proxy.closed > 0)
        relay.send(signal.SIGTERM)
        await relay.logged("stopping")
        proxy.heal()
        assert 0 == await relay.ended()

    assert 20 == await scene.queue.value(GIVEN_BACK) == await scene.queue.waiting()
    assert [(late, "failed", "exchange_missing")] == await scene.queue.sql(
        "SELECT id::text, result, error_code FROM queue_message_dead_list"
    )
    assert 21 == await scene.topology.waiting(made.queue)
