"""RabbitMQ's resource alarms: it reads nothing more from who publishes, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from relay import devservers
from tests.support.database.queue import Queue, until
from tests.support.faults.play import SMALL_SEEN
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.scrape import metric, page, shows

OUTLAST = 60
"""Seconds of a lock that is longer than the alarm."""
ALARMS = {
    8: (("set_vm_memory_high_watermark", "0.000001"), ("set_vm_memory_high_watermark", "absolute", "2GB")),
    9: (("set_disk_free_limit", "900000GB"), ("set_disk_free_limit", "50MB")),
}
"""By number of the fault: how it is raised, and how it ends."""


CLAIMED = "relay_messages_claimed_total"
TOLD_AT = "SELECT heartbeat_at FROM queue_message_relay"


@asynccontextmanager
async def alarm(broker: devservers.RabbitMQ, fault: int) -> AsyncIterator[None]:
    """The broker has an alarm."""
    raised, ended = ALARMS[fault]
    await asyncio.to_thread(broker.ctl, *raised)
    try:
        yield
    finally:
        await asyncio.to_thread(broker.ctl, *ended)


async def renewed(queue: Queue, seconds: float) -> bool:
    """Some message has been in flight for that long, and is still locked."""
    held = "SELECT count(*) FROM queue_message WHERE lock_expires_at > now() AND created_at < now() - make_interval(secs => %s)"
    return bool(await queue.value(held, seconds))


async def play(scene: Scene, fault: int, lock_seconds: int) -> None:
    """Insert, raise the alarm, insert more, and end the alarm once locks would have expired or a heartbeat has reported it."""
    await scene.configure(lock_seconds=lock_seconds)
    relay = await scene.start(**SMALL_SEEN)
    await scene.producer.insert(100)
    await scene.queue.settled()
    async with alarm(scene.broker, fault):
        await scene.producer.insert(400)
        await relay.logged("broker_blocked")
        await shows(relay, "relay_broker_blocked", 1)
        assert "The broker has a resource alarm: low on" in await page(relay, "/readyz")
        await until(lambda: tells(scene, "down or blocked"))
        claimed, told_at = await metric(relay, CLAIMED), await scene.queue.value(TOLD_AT)
        await scene.producer.insert(100)
        if lock_seconds == LOCK_SECONDS:
            await until(lambda: renewed(scene.queue, 2 * LOCK_SECONDS))
        await until(lambda: tells(scene, "down or blocked", since=told_at))
        assert f"{relay.name}: the broker is down or blocked" in await scene.status()
        assert claimed == await metric(relay, CLAIMED)
    await relay.logged("broker_unblocked")
    await shows(relay, "relay_broker_blocked", 0)
    await scene.queue.settled()
    assert 0 == await metric(relay, "relay_lock_lost_total")
    report = await scene.check(relay)
    assert 0 == report.duplicates
    assert [] == relay.of("locks_swept") + relay.of("broker_down")


async def tells(scene: Scene, broker: str, *, since: datetime = datetime(2000, 1, 1, tzinfo=UTC)) -> bool:
    """The relay's newest report says this of the broker, and is newer than that."""
    said = "SELECT state ->> 'broker' = %s AND heartbeat_at > %s FROM queue_message_relay"
    return bool(await scene.queue.value(said, broker, since))


LENGTHS = {"shorter": OUTLAST, "longer": LOCK_SECONDS}
"""Lock times, by whether the alarm is shorter or longer."""


def lengths(*, short: str) -> pytest.MarkDecorator:
    """Both, of which the short form plays one."""
    params = [pytest.param(seconds, id=name, marks=[] if name == short else pytest.mark.long_only) for name, seconds in LENGTHS.items()]
    return pytest.mark.parametrize("lock_seconds", params)


@pytest.mark.fault(8, repeats=3)
@pytest.mark.ids("C9", "A26")
@lengths(short="longer")
async def test_a_blocked_broker_is_waited_for(scene: Scene, lock_seconds: int) -> None:
    """A memory alarm, shorter or longer than the locks: they are renewed, nothing more is claimed, and nothing is sent twice."""
    await play(scene, 8, lock_seconds)


@pytest.mark.fault(9, repeats=3)
@pytest.mark.ids("C9", "A26")
@lengths(short="shorter")
async def test_a_broker_without_disk_space_is_waited_for(scene: Scene, lock_seconds: int) -> None:
    """A disk alarm is the same to the relay, and is logged in its own words."""
    await play(scene, 9, lock_seconds)
