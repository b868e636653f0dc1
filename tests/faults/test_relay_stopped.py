"""A relay that is asked to leave, or is suspended for a while."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import UNHURRIED, producing
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, seconds_between
from tests.support.relays.scrape import HTTP, page

STOPS = 3
DRAIN = 20
"""Seconds that a relay waits for confirms where nothing else is said and its locks last long."""
CUT = DRAIN / 2
"""Seconds in which a relay is gone that waits for no confirm any more, on any machine."""
WRITTEN = 100
"""Messages of one transaction, so of one claim: fewer than a relay writes before the broker has looked at them."""
READY = "SELECT id::text FROM queue_message WHERE lock_expires_at IS NULL"
HANDLED_BY = "SELECT DISTINCT handled_by FROM queue_message_archive WHERE id = ANY(%s::uuid[])"


@pytest.mark.fault(2, repeats=20)
@pytest.mark.ids("D9")
async def test_sigterm_under_load_leaves_nothing_behind(scene: Scene) -> None:
    """What was in flight is finished, nothing stays locked, and nothing is sent twice."""
    async with producing(scene):
        for number in range(STOPS):
            relay = await scene.start(f"relay-{number}", **HTTP)
            assert "relay_in_flight" in await page(relay)
            await asyncio.sleep(scene.chance.uniform(0.1, 1.0))  # the random moment
            assert 0 == await relay.stop()
            assert [] == await scene.held_by(relay)
            assert 0 == await scene.queue.value("SELECT count(*) FROM queue_message_relay")
            assert ("drain", 0) == (relay.of("stopping")[0]["action"], relay.of("stopped")[0]["kept"])
            with pytest.raises(AssertionError, match="does not answer"):  # what `up` is made of
                await page(relay)
        assert "no relay is alive" in await scene.status()

    report = await scene.check(await scene.start("last"))
    assert 0 == report.duplicates


async def in_hand(scene: Scene, name: str, **settings: str) -> RelayProcess:
    """A relay that has written messages to a broker that does not answer."""
    relay = await scene.start(name, **settings)
    await scene.producer.insert(100, ordered=False)
    await scene.queue.settled()
    scene.broker.freeze()
    await scene.producer.insert(WRITTEN, ordered=False)
    await until(lambda: scene.holds(relay, WRITTEN))
    await until(lambda: scene.waits_for_confirms(relay))
    return relay


@pytest.mark.fault(3, repeats=20)
@pytest.mark.ids("D9")
async def test_sigterm_leaves_at_once_to_others_what_a_slow_broker_has_not_taken(scene: Scene) -> None:
    """Unwritten messages are ready again while the drain continues for the written ones; another relay sends them, and none goes twice."""
    await scene.queue.sql("SELECT queue_message_config_set('lock_seconds', '60')")
    async with Proxy.before(scene.broker.url) as proxy:
        relay = await scene.start("slow", broker=proxy.url(scene.broker.url), RELAY_LOCK_SECONDS="60", RELAY_DRAIN_SECONDS="40")
        await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key="key")
        await scene.queue.settled()
        proxy.delay = 0.02  # 3 MB a second
        proxy.hold_answers()  # so that the drain cannot end
        ids = await scene.queue.insert(100, exchange=scene.inbox.exchange, routing_key="key", body=bytes(300_000))
        await until(lambda: scene.topology.has(scene.inbox.queue, 1 + 1))
        assert await scene.holds(relay, 100)

        relay.send(signal.SIGTERM)
        assert "drain" == (await relay.logged("stopping"))["action"]
        left = await ready(scene)
        assert 0 == await scene.queue.value("SELECT sum(attempts) FROM queue_message WHERE id = ANY(%s::uuid[])", left)
        assert [] == relay.of("stopped")
        proxy.heal()

        heir = await scene.start("heir")
        await scene.queue.settled()
        assert 0 == await relay.ended()
        assert 0 == await heir.stop()
    assert {"heir"} == {name for (name,) in await scene.queue.sql(HANDLED_BY, left)}
    assert {"slow"} == {name for (name,) in await scene.queue.sql(HANDLED_BY, [*{*ids} - {*left}])}
    assert 0 == relay.of("stopped")[0]["kept"]
    came = [message.headers["x-relay-id"] for message in await scene.topology.drain(scene.inbox.queue)]
    assert [1] * len(ids) == [came.count(id_) for id_ in ids]


async def ready(scene: Scene) -> list[str]:
    """Wait until messages are ready again; return their ids."""

    async def released() -> bool:
        return bool(await scene.queue.sql(READY))

    await until(released)
    return [id_ for (id_,) in await scene.queue.sql(READY)]


@pytest.mark.fault(3, repeats=5)
@pytest.mark.ids("D9")
async def test_a_second_sigterm_cuts_the_drain(scene: Scene) -> None:
    """The relay waits for confirms no longer; what was written keeps its lock, and goes out with the next one when that expires."""
    await scene.configure(lock_seconds=UNHURRIED)
    relay = await in_hand(scene, "relay")
    heir = await scene.start_beside("heir")
    relay.send(signal.SIGTERM)
    await relay.logged("stopping")
    assert 0 == await relay.stop()
    assert ["drain", "cut"] == [line["action"] for line in relay.of("stopping")]
    assert seconds_between(relay.of("stopping")[1], relay.of("stopped")[0]) < CUT
    assert WRITTEN == relay.of("stopped")[0]["kept"] == len(await scene.note_left_by(relay))
    scene.broker.thaw()

    await scene.queue.expire()
    await scene.check(heir)


@pytest.mark.fault(3, repeats=20)
@pytest.mark.ids("D9")
async def test_sigterm_ends_in_time_while_the_broker_is_silent(scene: Scene) -> None:
    """The drain ends after RELAY_DRAIN_SECONDS; written messages keep their locks, and are not settled."""
    relay = await in_hand(scene, "relay", RELAY_DRAIN_SECONDS="1")
    heir = await scene.start_beside("heir")
    assert 0 == await relay.stop()
    assert 1 <= seconds_between(relay.of("stopping")[0], relay.of("stopped")[0]) < CUT
    assert WRITTEN == len(await scene.note_left_by(relay))
    scene.broker.thaw()

    await scene.check(heir)


@pytest.mark.fault(3, repeats=5)
@pytest.mark.ids("D9")
async def test_sigterm_waits_for_no_first_answer_of_the_database(scene: Scene) -> None:
    """A relay that starts while the database is silent holds nothing, and leaves at once."""
    async with Proxy.before(scene.queue.url) as proxy:
        proxy.hold_answers()
        relay = await scene.relays.start("early", database=proxy.url(scene.queue.url), broker=scene.broker.url, ready=False)
        await until(lambda: proxy.connections > 0)
        relay.send(signal.SIGTERM)
        assert 0 == await relay.ended(CUT)
    assert ["stopping"] == [line["event"] for line in relay.lines]


@pytest.mark.fault(15, repeats=20)
@pytest.mark.ids("A11", "B9", "C5")
async def test_a_relay_that_slept_past_its_locks_settles_nothing_of_its_successor(scene: Scene) -> None:
    """It wakes up with confirms for messages that another relay holds by now: the fence rejects its writes, it says so, and continues."""
    sleeper = await in_hand(scene, "sleeper")
    scene.producer.fault(await scene.held_by(sleeper))
    sleeper.send(signal.SIGSTOP)
    scene.broker.thaw()
    async with Proxy.before(scene.broker.url) as proxy:
        successor = await scene.start("successor", broker=proxy.url(scene.broker.url))
        proxy.hold_answers()
        await until(lambda: scene.holds(successor))
        held = await scene.held_by(successor)

        sleeper.send(signal.SIGCONT)
        await sleeper.logged("lock_lost")
        assert {*held} <= {*await scene.held_by(successor)}
        assert [] == [relay for (relay,) in await scene.queue.sql(HANDLED_BY, held)]

        proxy.heal()
        await scene.producer.insert(100)
        # When they are out again is up to this test, which holds the answers of the broker.
        await scene.check(sleeper, successor, timed=False)
    assert ["successor"] == [relay for (relay,) in await scene.queue.sql(HANDLED_BY, held)]
