"""PostgreSQL whose clock is set while relays run: nothing is lost, little is repeated, and what a dead relay held comes free."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relay import devservers
from relay.errors import LocalServerError
from relay.postgres.schema.migrate import migrate
from tests.support.database.queue import Queue, until
from tests.support.faults.play import SMALL, WINDOW
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.sent import Sent, inserting, queue_at
from tests.support.servers.shared import Say
from tests.support.servers.wrong_clock import ClockedCluster, WallClock, libfaketime

HOUR = 3600
MONTH = 30 * 24 * HOUR
LOCK_SECONDS = 10
FREED = 120 + LOCK_SECONDS + 60.0
"""Seconds in which a dead relay's locks are free after the clock was set back: as promised, and a minute for a busy machine."""
DELAYED = 10
HELD = """
    UPDATE queue_message SET lock_expires_at = now() + make_interval(secs => %s), lock_token = gen_random_uuid(), locked_by = %s,
        attempts = 1
    WHERE id = ANY(%s::uuid[])
"""
SHORT = {**SMALL, "RELAY_POLL_INTERVAL": "1"}


@pytest.fixture
def clock(say: Say, tmp_path: Path) -> WallClock:
    """The clock of PostgreSQL, which is right so far."""
    try:
        return WallClock(libfaketime(say), tmp_path / "postgres.clock", 0)
    except LocalServerError as error:
        pytest.skip(f"libfaketime is not to be had here: {error}")


@asynccontextmanager
async def clocked(clock: WallClock) -> AsyncIterator[Queue]:
    """The queue of a PostgreSQL that goes by this clock."""
    with ClockedCluster(clock) as server:
        migrate(server.url)
        async with queue_at(server.new()) as queue:
            await queue.sql("SELECT queue_message_config_set('lock_seconds', %s)", str(LOCK_SECONDS))
            yield queue


async def owns_all_lanes(queue: Queue, relay: RelayProcess) -> bool:
    """No other relay owns a lane."""
    return bool(await queue.value("SELECT bool_and(owner = %s) FROM queue_message_lane", relay.id))


@pytest.mark.fault(36, repeats=3)
@pytest.mark.ids("A5", "B9", "C9")
@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["ahead", "back"])
async def test_a_clock_that_is_set_under_load_repeats_a_window_at_most(
    clock: WallClock, relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent, step: int
) -> None:
    """Nothing is lost, keys keep their order, and delayed messages go by the new time; retention trusts no leap of a month."""
    async with clocked(clock) as queue:
        both = [await relays.start(name, database=queue.url, broker=own_broker.url, settings=SHORT) for name in ("one", "two")]
        delayed = await queue.insert(DELAYED, **sent.to, available_at=await queue.value("SELECT now() + interval '30 min'"))
        begun = await queue.value("SELECT now()")
        async with queue_at(queue.url) as application, inserting(application, sent):
            clock.step_to(step)
            assert (step > 0) == (await queue.value("SELECT now()") > begun)

        await queue.settled(left=0 if step > 0 else DELAYED)
        assert [0, 0] == [await relay.stop() for relay in both]
        archived = await queue.value("SELECT count(*) FROM queue_message_archive")
        await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
        clock.step_to(MONTH)
        assert [("distrusted",)] == await queue.sql("SELECT action FROM queue_message_retain()")
        assert archived == await queue.value("SELECT count(*) FROM queue_message_archive")

    came = [str(message.headers["x-relay-id"]) for message in await sent.topology.drain(sent.inbox.queue)]
    sent.in_order(came)
    repeated = len(came) - len({*came})
    assert repeated <= (len(both) * WINDOW if step > 0 else 0)
    assert {*came} == {*sent.ids, *(delayed if step > 0 else ())}


@pytest.mark.fault(36, repeats=3)
@pytest.mark.ids("A12", "B9")
async def test_a_dead_relays_lanes_are_taken_after_the_clock_was_set_back(
    clock: WallClock, relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """As soon as a living one looks, and not an hour later."""
    async with clocked(clock) as queue:
        dead = await relays.start("dead", database=queue.url, broker=own_broker.url, settings=SHORT)
        await until(lambda: owns_all_lanes(queue, dead))
        await dead.kill()
        clock.step_to(-HOUR)
        living = await relays.start("living", database=queue.url, broker=own_broker.url, settings=SHORT)

        await until(lambda: owns_all_lanes(queue, living))
        await sent.insert(queue, 10, unkeyed=True)
        await queue.settled()
        assert 0 == await living.stop()
    await sent.all_came_in_order()


@pytest.mark.fault(36, repeats=3)
@pytest.mark.long_only
@pytest.mark.ids("A12", "B9")
async def test_a_dead_relays_locks_are_free_after_the_clock_was_set_back(
    clock: WallClock, relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """Within two minutes and the lock time, by the minute's sweep."""
    async with clocked(clock) as queue:
        dead = await relays.start("dead", database=queue.url, broker=own_broker.url, settings=SHORT)
        await dead.kill()
        await sent.insert(queue, 10, unkeyed=True)
        await queue.sql(HELD, LOCK_SECONDS, dead.id, sent.unkeyed)
        clock.step_to(-HOUR)
        living = await relays.start("living", database=queue.url, broker=own_broker.url, settings=SHORT)

        await queue.settled(seconds=FREED)
        assert len(sent.unkeyed) == sum(line["released"] for line in living.of("locks_swept"))
        assert 0 == await living.stop()
    await sent.all_came_in_order()
