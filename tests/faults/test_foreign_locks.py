"""Locks that others hold on queue and archive: what a relay can still do meanwhile, and that it can leave."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.support.database.queue import Queue, until
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.processes import RelayProcess

HELD_FOR = 8
"""Seconds that the archive is locked: longer than a message's lock, a lane's lease and three heartbeats."""
SILENT = 6
"""Seconds without a heartbeat after which the other relays take over."""
ALIVE = """
    SELECT now() - heartbeat_at < make_interval(secs => %s)
        AND (SELECT count(*) FROM queue_message_lane WHERE owner = relay.id AND lease_expires_at > now()) = 64
        AND NOT EXISTS (SELECT FROM queue_message WHERE locked_by = relay.id AND lock_expires_at <= now())
    FROM queue_message_relay AS relay WHERE id = %s
"""


@asynccontextmanager
async def holding(url: str, statement: str, *values: object) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A transaction of somebody else's that has run this statement and does not end."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(statement.encode(), values or None)
        yield other


async def is_out(queue: Queue, *ids: str) -> bool:
    """These messages are settled."""
    return not await queue.value("SELECT count(*) FROM queue_message WHERE id = ANY(%s::uuid[])", list(ids))


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("C8", "C9")
async def test_an_app_that_keeps_an_ordered_message_locked_holds_up_its_key_alone(scene: Scene) -> None:
    """Unordered messages, other keys of the same lane and later messages go out; the key's own stay in order and follow."""
    queue, to = scene.queue, {"exchange": scene.inbox.exchange, "routing_key": scene.inbox.routing_key}
    [first] = await queue.insert(**to, ordering_key="held")
    second = await queue.insert(2, **to, ordering_key="held")
    async with holding(queue.url, "UPDATE queue_message SET expires_at = now() + interval '1 day' WHERE id = %s", first) as app:
        relay = await scene.start()
        for round_ in range(3):
            free = await queue.insert(20, **to)
            keys = [id_ for number in range(100) for id_ in await queue.insert(**to, ordering_key=f"{round_}-{number}")]
            await until(lambda ids=(*free, *keys): is_out(queue, *ids))  # type: ignore[misc]
        assert [first, *second] == [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message ORDER BY xid, seq")]
        assert [] == relay.of("maintenance_failed")
        await app.commit()

    await until(lambda: is_out(queue, first, *second))
    order = [message.message_id for message in await scene.topology.drain(scene.inbox.queue)]
    assert [first, *second] == order[-3:]
    assert 363 == len(order) == len({*order})


@pytest.mark.fault(26, repeats=20)
@pytest.mark.slow
@pytest.mark.ids("A26", "C9")
async def test_a_locked_archive_is_waited_for_with_everything_kept(scene: Scene) -> None:
    """Archive locked for longer than the locks last, and a sweep by hand stuck behind it: nothing expires, nothing is sent twice."""
    queue, to = scene.queue, {"exchange": scene.inbox.exchange, "routing_key": scene.inbox.routing_key}
    await queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive')")
    [stale] = await queue.insert(**to)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 hour'")
    relay = await scene.start()
    async with (
        await psycopg.AsyncConnection.connect(queue.url, autocommit=True, application_name="operator") as operator,
        holding(queue.url, "LOCK TABLE queue_message_archive IN ACCESS EXCLUSIVE MODE") as other,
    ):
        locked_at = await queue.value("SELECT now()")
        sent = await queue.insert(200, **to) + [id_ for key in range(50) for id_ in await queue.insert(2, **to, ordering_key=f"{key}")]
        await until(lambda: scene.holds(relay, 250))
        await queue.expire(stale)
        sweep = asyncio.create_task(operator.execute("SELECT * FROM queue_message_sweep_minute()"))
        await until(lambda: queue.is_held_up("operator"))

        async def is_over() -> bool:
            assert await queue.value(ALIVE, SILENT, relay.id)
            return bool(await queue.value("SELECT now() > %s + make_interval(secs => %s)", locked_at, HELD_FOR))

        await until(is_over)
        await relay.logged("settle_failed")
        await other.rollback()
        assert (0, 1) == await (await sweep).fetchone()

    await scene.queue.settled()
    assert 0 == await relay.stop()
    assert sorted(sent) == sorted(message.message_id or "" for message in await scene.topology.drain(scene.inbox.queue))
    assert {**dict.fromkeys(sent, "success"), stale: "lock_expired"} == await queue.results()
    assert [] == relay.of("locks_swept") + relay.of("lock_lost")


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("A26", "C9")
@pytest.mark.parametrize(("strength", "count"), [("UPDATE", 1), ("KEY SHARE", 4)])
async def test_rows_that_an_application_holds_cost_no_other_message_anything(scene: Scene, strength: str, count: int) -> None:
    """They are held past the confirm and the end of their locks: the others are settled, claims continue, and nothing goes out twice."""
    queue, to = scene.queue, {"exchange": scene.inbox.exchange, "routing_key": scene.inbox.routing_key}
    relay = await scene.start(RELAY_WINDOW="40", RELAY_BATCH_SIZE="10")
    scene.broker.freeze()
    sent = await queue.insert(20, **to)
    await until(lambda: scene.holds(relay, 20))
    await until(lambda: scene.waits_for_confirms(relay))
    held = sent[:: 20 // count][:count]
    async with holding(queue.url, f"SELECT FROM queue_message WHERE id = ANY(%s::uuid[]) FOR {strength}", held) as app:
        held_at = await queue.value("SELECT now()")
        scene.broker.thaw()
        await until(lambda: is_out(queue, *{*sent} - {*held}))
        assert await queue.value("SELECT now() < %s + make_interval(secs => %s)", held_at, LOCK_SECONDS), "as soon as they are confirmed"

        async def is_over() -> bool:
            more = await queue.insert(100, **to)
            sent.extend(more)
            await until(lambda: is_out(queue, *more))
            return bool(await queue.value("SELECT now() > %s + make_interval(secs => %s)", held_at, 2 * LOCK_SECONDS))

        await until(is_over)
        assert count == await queue.waiting()
        checked = json.loads(await scene.relays.command("check", "--queue", "--json", "--wait", "2", database=queue.url))
        reason = f"session {app.info.backend_pid} (pg_stat_activity) keeps the row locked: end that transaction"
        # The weaker lock lets the relay renew its own, so that it is one of those that are not over.
        held_up = held if strength == "UPDATE" else []
        assert dict.fromkeys(held_up, reason) == {row["id"]: row["reason"] for row in checked["settling_messages"]}
        assert (0, count) == (checked["lost"], checked["locked"])
        await app.rollback()

    await queue.settled()
    assert 0 == await relay.stop()
    assert sorted(sent) == sorted(message.message_id or "" for message in await scene.topology.drain(scene.inbox.queue))
    assert dict.fromkeys(sent, "success") == await queue.results()
    assert [] == relay.of("locks_swept") + relay.of("lock_lost") + relay.of("maintenance_failed")


async def stop_twice(relay: RelayProcess) -> None:
    """Two signals, the second as soon as the first is taken, and an end in order: one that waits for a server is cut off, with 1."""
    relay.send(signal.SIGTERM)
    await relay.logged("stopping")
    relay.send(signal.SIGTERM)
    assert 0 == await relay.ended()


@pytest.mark.fault(3, repeats=20)
@pytest.mark.ids("D9")
async def test_a_second_sigterm_waits_for_no_lock_of_somebody_else(scene: Scene) -> None:
    """Every claim waits behind a locked queue: the relay is gone while it is locked still, and its messages go out with the next one."""
    relay = await scene.start()
    await scene.producer.insert(100)
    await scene.queue.settled()
    async with holding(scene.queue.url, "LOCK TABLE queue_message"):
        await until(lambda: scene.queue.is_held_up(f"outbox-relay/{relay.name} %"))
        await stop_twice(relay)

    await scene.producer.insert(100)
    await scene.check(await scene.start("next"))
