"""Many messages that are paused, delayed or locked by an application: they hold up no other message, and leave themselves in the end."""

from __future__ import annotations

import time

import psycopg
import pytest

from relay.claims.rate_limits import BURST, DEBT
from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.servers.shared import Say

MANY = 100_000
FUTURE = 200_000
PROMPT = 1.0
"""Seconds for a fresh message, on a machine that has time."""
SOON = 10.0
SLOW = 6.0
"""How many times as long everything takes by all means, on a busy machine."""
INSERT = """INSERT INTO queue_message (exchange, routing_key, available_at, ordering_key)
    SELECT %s, %s, now() + make_interval(secs => %s), %s FROM generate_series(1, %s)"""
PAUSED = "paused"
RATE, BEHIND, MOVED = 10, 12_000, 50
"""A limit a second; messages of each kind behind it, more than a page; and those that are waited for."""


async def insert(scene: Scene, count: int, *, exchange: str = "", wait: float | None = None, key: str | None = None) -> None:
    """Insert messages for the inbox, or for an exchange that is paused."""
    await scene.queue.sql(INSERT, exchange or scene.inbox.exchange, scene.inbox.routing_key, wait, key, count)


async def seconds_until(scene: Scene, count: int) -> float:
    """Wait for so many at the broker; return how long that took."""
    began = time.monotonic()
    await until(lambda: scene.topology.has(scene.inbox.queue, count))
    return time.monotonic() - began


@pytest.mark.fault(21, repeats=3)
@pytest.mark.slow
async def test_a_hundred_thousand_due_messages_of_a_paused_exchange_hold_up_no_other(scene: Scene, say: Say) -> None:
    """A fresh message of another exchange leaves at once, two thousand due ones soon, and after it is resumed everything."""
    relay = await scene.start()
    paused = await scene.topology.declare_exchange(f"{scene.inbox.exchange}.paused", kind="fanout")
    await (await scene.topology._channel.get_queue(scene.inbox.queue)).bind(paused)
    await scene.queue.sql("SELECT queue_message_pause(%s)", paused)
    await insert(scene, MANY, exchange=paused, wait=-60)
    await insert(scene, 1)
    fresh = await seconds_until(scene, 1)
    await insert(scene, 2000, wait=-60)
    due = await seconds_until(scene, 2001)
    await scene.queue.sql("SELECT queue_message_resume(%s)", paused)
    await scene.queue.settled()

    say(f"behind {MANY:,} of a paused exchange: a fresh message after {fresh:.1f} s, two thousand due ones after {due:.1f} s")
    assert [] == relay.of("database_down")
    assert fresh <= PROMPT * SLOW
    assert due <= SOON * SLOW
    assert await scene.topology.has(scene.inbox.queue, MANY + 2001)


@pytest.mark.fault(21, repeats=3)
@pytest.mark.slow
async def test_due_messages_of_a_limited_exchange_hold_up_no_other_and_go_at_its_rate(scene: Scene, say: Say) -> None:
    """Fresh ones of it too, and such as are next under their keys; when the limit is lifted they leave."""
    relay = await scene.start()
    limited = await scene.topology.declare(f"{scene.inbox.exchange}.limited", f"{scene.inbox.queue}.limited")
    await scene.queue.sql("SELECT queue_message_limit(%s, %s)", limited.exchange, RATE)
    await relay.logged("exchange_limited")
    for wait, key in ((-60.0, None), (None, None), (-60.0, "k"), (None, "l")):
        await scene.queue.sql(INSERT, limited.exchange, limited.routing_key, wait, key, BEHIND)
    await insert(scene, 1)
    fresh = await seconds_until(scene, 1)
    await insert(scene, 2000, wait=-60)
    due = await seconds_until(scene, 2001)
    came, began = await scene.topology.waiting(limited.queue), time.monotonic()
    await until(lambda: scene.topology.has(limited.queue, came + MOVED))
    moved = time.monotonic() - began
    await scene.queue.sql("SELECT queue_message_unlimit(%s)", limited.exchange)
    await until(lambda: scene.topology.has(limited.queue, 2 * BEHIND))

    say(f"behind a limit: a fresh message after {fresh:.1f} s, two thousand due ones after {due:.1f} s; {MOVED} of it in {moved:.1f} s")
    assert [] == relay.of("database_down")
    assert fresh <= PROMPT * SLOW
    assert due <= SOON * SLOW
    assert MOVED / RATE - BURST <= moved <= (MOVED / RATE + DEBT) * SLOW


@pytest.mark.fault(21, repeats=3)
@pytest.mark.slow
@pytest.mark.parametrize(("count", "prepared"), [(10, False), (6000, False), (6000, True)])
async def test_what_a_cancellation_held_that_rolls_back_leaves_soon(scene: Scene, say: Say, count: int, *, prepared: bool) -> None:
    """Fresh messages that the head has passed, although another exchange is paused, and a transaction that writes is open.

    A prepared transaction holds them without a session.
    """
    await scene.queue.sql("SELECT queue_message_pause(%s)", PAUSED)
    await insert(scene, 1000, exchange=PAUSED)
    async with (
        await psycopg.AsyncConnection.connect(scene.queue.url) as writer,
        await psycopg.AsyncConnection.connect(scene.queue.url, autocommit=True) as other,
    ):
        await writer.execute("INSERT INTO queue_message (exchange) VALUES (%s)", [PAUSED])
        await insert(scene, count)
        await other.execute("BEGIN")
        await other.execute("SELECT queue_message_cancel(id) FROM queue_message WHERE exchange = %s", [scene.inbox.exchange])
        if prepared:
            await other.execute("PREPARE TRANSACTION 'cancels'")
        relay = await scene.start()
        await insert(scene, 1)
        await seconds_until(scene, 1)
        await other.execute("ROLLBACK PREPARED 'cancels'" if prepared else "ROLLBACK")
        took = await seconds_until(scene, count + 1)

    say(f"{count:,} after a cancellation that rolled back: {took:.1f} s")
    assert took <= SOON * SLOW
    assert 0 == await relay.stop()


@pytest.mark.fault(21, repeats=3)
@pytest.mark.slow
@pytest.mark.ids("C8")
async def test_a_relay_starts_promptly_behind_delayed_messages(scene: Scene, say: Say) -> None:
    """Two hundred thousand that wait for tomorrow stand before the first one that is due; no statement takes long."""
    await insert(scene, FUTURE, wait=86400)
    await insert(scene, 1)
    relay = await scene.start()
    took = await seconds_until(scene, 1)

    say(f"behind {FUTURE:,} delayed messages: the first one after {took:.1f} s")
    assert took <= PROMPT * SLOW
    assert [] == relay.of("database_down") + relay.of("maintenance_failed")


@pytest.mark.fault(1, repeats=5)
@pytest.mark.ids("A12", "B9")
@pytest.mark.parametrize("backlog", [0, 30_000])
async def test_what_a_killed_relay_held_is_out_again_wherever_it_stands(scene: Scene, backlog: int) -> None:
    """Fresh, waiting and ordered messages, before and behind a backlog of a paused exchange: within the lock time and five seconds."""
    await scene.queue.sql("SELECT queue_message_pause(%s)", PAUSED)
    await insert(scene, backlog, exchange=PAUSED)
    victim = await scene.start("victim")
    await until(lambda: scene.queue.value("SELECT count(*) = 64 FROM queue_message_lane WHERE owner IS NOT NULL"))
    scene.broker.freeze()
    for wait, key in ((None, None), (-60.0, None), (None, "k"), (-60.0, "l")):
        await insert(scene, 1, wait=wait, key=key)
    await insert(scene, backlog, exchange=PAUSED)
    await until(lambda: scene.holds(victim, 4))
    await scene.kill(victim)
    began = time.monotonic()
    scene.broker.thaw()
    rescuer = await scene.start("rescuer")
    await scene.queue.settled(2 * backlog)

    assert time.monotonic() - began <= scene.recovery
    assert 4 == sum(line["released"] for line in rescuer.of("locks_swept"))
    assert ["success"] * 4 == [*(await scene.queue.results()).values()]
