"""A relay that dies under load."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import producing
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP, metric

KILLS, MANY_KILLS = 4, 40
"""In a run of the short form and of the long one."""
MANY = 1000
"""Half of a window: as much as one exchange gets while its broker is silent."""


@pytest.mark.fault(1, repeats=5)  # of forty kills each
@pytest.mark.timeout(900)
@pytest.mark.ids("A12", "A17", "B9", "C1", "C5", "C7", "C17")
async def test_kill_9_at_random_moments_loses_nothing(scene: Scene, *, long_form: bool) -> None:
    """Nothing lost, nothing from a rollback, keys in order, duplicates only of what was in flight, and that is out again in time."""
    running = [await scene.start(f"relay-{number}") for number in range(2)]
    async with producing(scene):
        for number in range(MANY_KILLS if long_form else KILLS):
            await asyncio.sleep(scene.chance.uniform(0.1, 1.5))  # the random moment
            await scene.kill(running.pop(0))
            running.append(await scene.start(f"relay-{number + 2}"))

    await scene.check(*running)


@pytest.mark.fault(1, repeats=20)
@pytest.mark.ids("A12", "B9")
async def test_a_thousand_messages_are_out_again_in_time(scene: Scene) -> None:
    """A relay dies over a thousand messages and more: the other one has sent them within the lock time and five seconds, and says so."""
    # Neither can hold them all.
    window = {"RELAY_WINDOW": str(2 * MANY)}
    victim, rescuer = await scene.start("victim", **window), await scene.start("rescuer", **window, **HTTP)
    scene.broker.freeze()
    await scene.producer.insert(3 * MANY, ordered=False)
    await until(lambda: scene.holds(victim, MANY))
    await scene.kill(victim)
    scene.broker.thaw()

    await rescuer.logged("locks_swept")
    await until(lambda: has_swept(rescuer, MANY))
    assert re.search(r"victim \(.+? silent ", await scene.status())
    await scene.check(rescuer)


async def has_swept(relay: RelayProcess, count: int) -> bool:
    """The relay has found at least so many messages with expired locks."""
    return await metric(relay, "relay_swept_total", to="queue") >= count


@pytest.mark.fault(1, repeats=20)
@pytest.mark.ids("A12", "B9")
async def test_ordered_messages_above_every_head_are_free_in_time(scene: Scene) -> None:
    """A dead relay held heads of keys behind a long backlog, which the other one works through slowly."""
    to = {"exchange": scene.inbox.exchange, "routing_key": scene.inbox.routing_key}
    await scene.queue.sql("SELECT queue_message_pause(%s)", scene.inbox.exchange)
    victim = await scene.start("victim")
    await scene.queue.insert(6 * MANY, **to)
    await scene.queue.insert(MANY // 10, **to, ordering_key="k")
    scene.broker.freeze()
    await scene.queue.sql("SELECT queue_message_resume(%s)", scene.inbox.exchange)
    await until(lambda: holds_heads(scene, victim))
    rescuer = await scene.start_beside("rescuer", RELAY_WINDOW="1", RELAY_BATCH_SIZE="1")
    await scene.kill(victim)
    scene.broker.thaw()

    await until(lambda: has_let_go(scene, victim), scene.recovery)
    assert await scene.queue.waiting() > MANY
    helper = await scene.start("helper")
    await scene.queue.settled()
    assert {"success"} == {*(await scene.queue.results()).values()}
    assert [0, 0] == [await relay.stop() for relay in (rescuer, helper)]


async def holds_heads(scene: Scene, relay: RelayProcess) -> bool:
    """This relay has ordered messages in flight."""
    held = "SELECT count(*) > 0 FROM queue_message WHERE locked_by = %s AND lock_expires_at IS NOT NULL AND ordering_key IS NOT NULL"
    return bool(await scene.queue.value(held, relay.id))


async def has_let_go(scene: Scene, relay: RelayProcess) -> bool:
    """This relay no longer has any ordered message in flight."""
    return not await holds_heads(scene, relay)


@pytest.mark.fault(1, repeats=20)
@pytest.mark.ids("A11", "A28")
async def test_the_strict_convention_archives_what_a_dead_relay_held(scene: Scene) -> None:
    """With on_lock_expired = archive a lost lock is the end: archived `lock_expired` with a sentence, and not sent again."""
    await scene.queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive')")
    victim = await scene.start("victim")
    scene.broker.freeze()
    ids = await scene.queue.insert(10, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
    await until(lambda: scene.holds(victim, 10))
    await victim.kill()
    scene.broker.thaw()
    rescuer = await scene.start("rescuer")
    await scene.queue.settled()

    assert dict.fromkeys(ids, "lock_expired") == await scene.queue.results()
    assert "The lock of victim expired at" in (await scene.queue.archived(ids[0]))["error_detail"]
    assert 0 == await rescuer.stop()
    assert {*ids} >= {message.message_id for message in await scene.topology.drain(scene.inbox.queue)}
