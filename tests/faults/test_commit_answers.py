"""PostgreSQL's answers are lost: a statement or a COMMIT was carried out, and who asked for it never hears of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.database.queue import PATIENCE, until
from tests.support.faults.play import SMALL, WINDOW, play
from tests.support.faults.scene import Scene
from tests.support.network.delaying_proxy import Trap
from tests.support.network.proxy import Proxy
from tests.support.relays.ledgers import Producer
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP, counted, metric

TIMES = 3
LONG = "30"
"""Seconds of a lock that no slow machine outlasts."""
MANY = 200
"""More than an exchange's first batch."""
ARCHIVED = "SELECT count(*) FROM queue_message_archive"
CLAIM = b"available_at IS NULL AND ordering_key IS NULL\n            AND exchange <> ALL("
"""Text of the claim of new messages, and of no other statement."""
LOCKED = "SELECT count(*) FROM queue_message WHERE lock_expires_at IS NOT NULL"
RELEASED = "SELECT count(*) FROM queue_message WHERE lock_expires_at IS NULL AND attempts = 1"


async def start(scene: Scene, proxy: Proxy, **settings: str) -> RelayProcess:
    """A relay whose statements go through the proxy; what it hears of inserts does not."""
    settings = {**SMALL, **HTTP, "RELAY_LISTEN_URL": scene.queue.url, **settings}
    return await scene.start(database=proxy.url(scene.queue.url), **settings)


async def cut(proxy: Proxy) -> None:
    """Break every connection with its answers, and let new ones through."""
    proxy.reset()
    proxy.heal()


async def reaches(scene: Scene, statement: str, least: int) -> bool:
    """So many rows are there, by a connection of the test's own."""
    return int(await scene.queue.value(statement)) >= least


async def carried_out(
    scene: Scene, proxy: Proxy, statement: str, least: int, begin: Callable[[], Awaitable[object]], seconds: float = PATIENCE
) -> None:
    """Keep the answers back, let a statement begin, and break the connections once it has done its work."""
    proxy.hold_answers()
    await begin()
    await until(lambda: reaches(scene, statement, least), seconds)
    await cut(proxy)


async def thaw(scene: Scene) -> None:
    """Let the broker confirm what it has."""
    scene.broker.thaw()


async def settled_unheard(scene: Scene, proxy: Proxy, relay: RelayProcess) -> bool:
    """Let a settle do its work unheard; False for one that waited itself for an answer, such as that to its preparation."""
    before = await scene.queue.value(ARCHIVED)
    scene.broker.freeze()
    await scene.producer.insert(MANY, ordered=False)
    await until(lambda: scene.holds(relay, MANY))
    await until(lambda: scene.waits_for_confirms(relay))
    try:
        await carried_out(scene, proxy, ARCHIVED, before + 1, lambda: thaw(scene), seconds=15)
    except TimeoutError:
        await cut(proxy)
        return False
    finally:
        await scene.queue.settled()
    return True


@pytest.mark.fault(6, repeats=20)
@pytest.mark.ids("A17", "C5")
async def test_a_settle_that_was_carried_out_unheard_is_not_done_twice(scene: Scene) -> None:
    """The relay settles again, finds its own rows in the archive, and neither sends nor archives nor misses anything."""
    await scene.queue.sql("SELECT queue_message_config_set('lock_seconds', %s)", LONG)
    async with Proxy.before(scene.queue.url) as proxy:
        relay = await start(scene, proxy)
        await scene.producer.insert(100)
        await scene.queue.settled()  # a statement is prepared at its first use, whose answer is waited for
        unheard: list[bool] = []
        while sum(unheard) < TIMES:
            unheard.append(await settled_unheard(scene, proxy, relay))
            assert len(unheard) <= 2 * TIMES

        await relay.logged("settle_failed")
        assert TIMES <= await counted(relay, TIMES, "relay_failures_total", step="settle")
        assert 0 == await metric(relay, "relay_lock_lost_total")
        report = await scene.check(relay, timed=False)
    assert (100 + len(unheard) * MANY, 0) == (report.delivered, report.duplicates)
    assert [] == relay.of("lock_lost")


async def claimed_unheard(scene: Scene, proxy: Trap) -> None:
    """Let a claim run without its answer; a claim that came too early and found nothing is cut off, and another is tried."""
    while not await reaches(scene, LOCKED, 1):
        await cut(proxy)
        await scene.queue.settled()
        proxy.text = CLAIM
        await scene.producer.insert(100, ordered=False)
        with suppress(TimeoutError):
            await until(lambda: reaches(scene, LOCKED, 1), 2)


@pytest.mark.fault(6, repeats=20)
@pytest.mark.ids("A12", "A17", "B9")
async def test_what_was_claimed_unheard_goes_out_when_its_lock_expires(scene: Scene) -> None:
    """No relay has these messages in flight; the relay that claimed them frees them itself, as soon as a dead relay's would be freed."""
    async with Trap.before(scene.queue.url) as proxy:
        relay = await start(scene, proxy, RELAY_PREPARE="false")  # so that a statement is one request
        await claimed_unheard(scene, proxy)
        assert await scene.note_left_by(relay)
        await cut(proxy)
        report = await scene.check(relay)
    assert 0 == report.duplicates
    assert relay.of("database_down")
    assert relay.of("locks_swept")


@pytest.mark.fault(6, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("A17", "A27")
async def test_a_retry_that_was_written_unheard_is_not_taken_for_lost(scene: Scene) -> None:
    """No queue takes the messages: the relay repeats the failed write, recognises its own words, and holds no other relay responsible."""
    await scene.queue.sql("SELECT queue_message_config_set('lock_seconds', %s)", LONG)
    nowhere = await scene.topology.declare_exchange(f"{scene.inbox.exchange}.nowhere")
    async with Proxy.before(scene.queue.url) as proxy:
        relay = await start(scene, proxy)
        await scene.queue.insert(exchange=nowhere)
        await until(lambda: reaches(scene, RELEASED, 1))
        scene.broker.freeze()
        await scene.queue.insert(20, exchange=nowhere)
        await until(lambda: scene.holds(relay, 20))
        await until(lambda: scene.waits_for_confirms(relay))
        await carried_out(scene, proxy, RELEASED, 20, lambda: thaw(scene))
        await relay.logged("settle_failed")
        await scene.queue.sql("SELECT queue_message_config_set('unroutable', 'accept')")
        await scene.queue.settled()
        assert 0 == await relay.stop()
    assert {"success"} == {*(await scene.queue.results()).values()}
    assert [] == relay.of("lock_lost")


@pytest.mark.fault(6, repeats=20)
@pytest.mark.ids("A17", "C1", "C5")
async def test_answers_lost_at_random_moments_lose_and_double_nothing(scene: Scene, tmp_path: Path) -> None:
    """Application and relay hear nothing more for a while under load, then are cut off: each transaction is whole or was never there."""
    (tmp_path / "cut").mkdir()
    async with Proxy.before(scene.queue.url) as proxy:
        with Producer(proxy.url(scene.queue.url), scene.inbox.exchange, tmp_path / "cut", scene.chance) as scene.producer:
            relay = await start(scene, proxy)

            async def fault() -> None:
                for _ in range(TIMES):
                    proxy.hold_answers()
                    await asyncio.sleep(scene.chance.uniform(0.05, 0.3))  # the random moment
                    scene.producer.fault(WINDOW)
                    await cut(proxy)
                    await relay.logged("broker_up")
                    await asyncio.sleep(scene.chance.uniform(0.3, 0.6))  # the random moment

            await play(scene, fault, relay)
            await scene.check(relay, timed=False)
