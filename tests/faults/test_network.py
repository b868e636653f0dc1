"""The network between a relay and its two servers: cut, silent, or poor; and a relay that must leave while it is silent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN, WINDOW, play
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, seconds_between
from tests.support.relays.scrape import HTTP, metric, page, shows, shows_flow

SMALL = {**SMALL_SEEN, "RELAY_BATCH_SIZE": "50"}
LASTING = 20
"""Seconds of a lock that outlasts a poor network's answers."""
LARGE = 200_000
"""Bytes of a message, of which the buffers between relay and proxy hold some dozens."""
DRAIN, GRACE = 1, 9
"""Seconds that a relay waits for confirms, and within which it is gone after them whatever its servers do."""
HANDLED = "SELECT count(DISTINCT handled_by) FROM queue_message_archive"
KEPT = "SELECT count(*) FROM queue_message WHERE lock_expires_at > now() AND attempts = 1"
RELEASED = "SELECT count(*) FROM queue_message WHERE lock_expires_at IS NULL AND attempts = 0"
SILENCES: Sequence[Callable[[Proxy], None]] = (Proxy.black_hole, Proxy.hold_answers, Proxy.hold_requests)
"""Half-open both ways, and one way only."""
LEGS = ("broker", "database")
UP = {"broker": "relay_broker_up", "database": "relay_database_up"}


def ways(scene: Scene, proxy: Proxy, leg: str) -> dict[str, str]:
    """Arguments of `Scene.start` by which one of the two servers is reached through a proxy."""
    return {leg: proxy.url(scene.broker.url) + "?heartbeat=1" if leg == "broker" else proxy.url(scene.queue.url)}


@asynccontextmanager
async def behind(scene: Scene, leg: str, count: int = len(SILENCES)) -> AsyncIterator[list[tuple[RelayProcess, Proxy]]]:
    """Relays that each have a proxy of their own before one of the servers."""
    async with AsyncExitStack() as stack:
        url = scene.broker.url if leg == "broker" else scene.queue.url
        proxies = [await stack.enter_async_context(Proxy.before(url)) for _ in range(count)]
        starts = [scene.start(f"relay-{number}", **ways(scene, proxy, leg), **SMALL) for number, proxy in enumerate(proxies)]
        yield [*zip(await asyncio.gather(*starts), proxies, strict=True)]


@pytest.mark.fault(10, repeats=20)
@pytest.mark.ids("C9")
@pytest.mark.parametrize("leg", LEGS)
async def test_a_cut_connection_is_made_anew(scene: Scene, leg: str) -> None:
    """Reset, then closed in order, under load: the relay says so, connects again, and repeats at most what was in flight."""
    async with behind(scene, leg, 1) as [(relay, proxy)]:

        async def fault() -> None:
            for cut in (proxy.reset, proxy.close):
                before = proxy.connections
                if leg == "broker":
                    scene.producer.fault(WINDOW)
                cut()
                await until(lambda before=before: proxy.connections > before)  # type: ignore[misc]
                await until(lambda: shows_flow(relay))
            await relay.logged(f"{leg}_down")

        await play(scene, fault, relay)
        report = await scene.check(relay)
    assert leg == "broker" or report.duplicates == 0


@pytest.mark.fault(10, repeats=20)
@pytest.mark.ids("C9")
async def test_a_relay_without_its_broker_holds_up_no_key(scene: Scene) -> None:
    """Its lanes go to the relay that has a connection, and half of all come back as soon as it has one again."""
    async with behind(scene, "broker", 1) as [(lost, proxy)]:
        other = await scene.start("other")
        await until(lambda: own_lanes(scene, lost, other))
        proxy.black_hole()
        await lost.logged("broker_down")
        await scene.producer.insert(200, ordered=True)
        await scene.queue.settled()
        assert 0 == await metric(lost, UP["broker"])
        proxy.heal()
        await until(lambda: own_lanes(scene, lost, other))
        await scene.producer.insert(200, ordered=True)
        report = await scene.check(lost, other)
    assert 0 == report.duplicates


async def own_lanes(scene: Scene, *relays: RelayProcess) -> bool:
    """These relays own all lanes, each as many as the others."""
    owned = await scene.queue.sql("SELECT owner, count(*) FROM queue_message_lane GROUP BY owner")
    return {relay.id: 64 // len(relays) for relay in relays} == dict(owned)


@pytest.mark.fault(10, repeats=20)
@pytest.mark.ids("C9")
@pytest.mark.parametrize("leg", [pytest.param("broker", marks=pytest.mark.long_only), "database"])
async def test_a_network_that_swallows_everything_is_noticed(scene: Scene, leg: str) -> None:
    """No error and no answer, both ways or one way only: each relay notices, shows it, and continues with a new connection."""
    async with behind(scene, leg) as pairs:

        async def fault() -> None:
            for (_, proxy), silence in zip(pairs, SILENCES, strict=True):
                silence(proxy)
                scene.producer.fault(WINDOW)
            for relay, proxy in pairs:
                await relay.logged(f"{leg}_down")
                await shows(relay, UP[leg], 0)
                assert leg in await page(relay, "/readyz")
                proxy.heal()  # what was swallowed arrives late, on connections that the relay has left
                await shows(relay, UP[leg], 1)

        await play(scene, fault, *(relay for relay, _ in pairs))
        await scene.check(*(relay for relay, _ in pairs), timed=False)


@pytest.mark.fault(10, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C9")
@pytest.mark.parametrize("leg", LEGS)
async def test_a_poor_network_costs_time_alone(scene: Scene, leg: str) -> None:
    """One relay has 50 to 500 ms, one 20 KB a second, one everything in slices: nothing is sent twice, and no connection is lost."""
    await scene.configure(lock_seconds=LASTING)
    async with behind(scene, leg) as pairs:
        (_, late), (_, slow), (_, sliced) = pairs

        async def fault() -> None:
            late.delay, late.jitter = 0.05, 0.45
            slow.rate = 20_000
            sliced.slice = 7
            late.chance = sliced.chance = scene.chance
            await until(lambda: all_at_work(scene, len(pairs)))

        await play(scene, fault, *(relay for relay, _ in pairs))
        late.delay = late.jitter = slow.rate = 0
        report = await scene.check(*(relay for relay, _ in pairs))
        assert 0 == report.duplicates
        assert [] == [line for relay, _ in pairs for event in ("broker_down", "database_down", "lock_lost") for line in relay.of(event)]


async def all_at_work(scene: Scene, relays: int) -> bool:
    """Each relay has settled something."""
    return bool(await scene.queue.value(HANDLED) == relays)


@pytest.mark.fault(3, repeats=20)
@pytest.mark.ids("D9")
async def test_sigterm_ends_in_time_behind_a_black_hole(scene: Scene) -> None:
    """Unwritten messages are released; written ones stay locked and unsettled. The heir sends all of them."""
    await scene.configure(lock_seconds=LASTING)
    scene.producer.shape = lambda message: {**message, "size": LARGE}
    async with Proxy.before(scene.broker.url) as proxy:
        relay = await scene.start(broker=proxy.url(scene.broker.url), RELAY_DRAIN_SECONDS=str(DRAIN), **HTTP)
        proxy.black_hole()
        await scene.producer.insert(100, ordered=False)
        await until(lambda: scene.waits_for_confirms(relay))
        await until(lambda: shows_in_hand(relay, 100))
        relay.send(signal.SIGTERM)
        assert 0 == await relay.ended()
    stopping, stopped = relay.of("stopping")[0], relay.of("stopped")[0]
    assert DRAIN <= seconds_between(stopping, stopped) < DRAIN + GRACE
    assert {} == await scene.queue.results()
    kept, released = await scene.queue.value(KEPT), await scene.queue.value(RELEASED)
    assert (kept, 100) == (stopped["kept"], kept + released)
    assert kept > 0
    assert released > 0
    assert f"left {kept}" in await scene.status()
    assert kept == len(await scene.note_left_by(relay))
    await scene.queue.expire()
    await scene.check(await scene.start("heir"))


async def shows_in_hand(relay: RelayProcess, count: int) -> bool:
    """So many messages are claimed and not settled, by its metric."""
    return await metric(relay, "relay_in_flight") == count
