"""Logins that stop working under load: passwords rotated, certificates expired, no connection left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay import devservers
from relay.devservers.postgres import Postgres
from tests.faults.tls_front import TlsFront
from tests.support.database.queue import until
from tests.support.faults.play import SMALL, WINDOW, play, tells
from tests.support.faults.scenario import moved
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, seconds_between
from tests.support.relays.scrape import HTTP, page, shows
from tests.support.servers.certificates import Authority, TlsPostgres
from tests.support.servers.logins import login
from tests.support.servers.private import user_of

OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%'"
LINES = 3
"""Log lines of one kind after which their pace is looked at."""


async def refused(relay: RelayProcess, event: str, words: str, gauge: str, *, by: str) -> None:
    """The relay says why it waits in one sentence, with less than a line a second, and shows it at `/readyz` and in its metrics."""
    before = len(relay.of(event))
    await until(lambda: len([line for line in relay.of(event)[before:] if words in line["error"]]) >= LINES)
    lines = relay.of(event)
    # A line that was held back for a second bears the time of its event.
    assert len(lines) <= seconds_between(lines[0], lines[-1]) + 2, lines
    await shows(relay, gauge, 0)
    assert words in await page(relay, "/readyz")
    assert by not in str(relay.lines)


async def alter(scene: Scene, user: str, password: str) -> None:
    """Set a role's password, and end the sessions that logged in with the one before."""
    await scene.queue.sql(f"ALTER ROLE {user} PASSWORD '{password}'")
    await scene.queue.sql(OFF)


@pytest.mark.fault(27, repeats=20)
@pytest.mark.ids("C9")
async def test_a_rotated_database_password_is_named_and_waited_for(scene: Scene) -> None:
    """The password is suddenly refused: at most a sentence a second is logged, without the password.

    The relay continues with the right one.
    """
    with login(scene.queue.url, "queue_message_relay") as url:
        user, password = (str(conninfo_to_dict(url)[name]) for name in ("user", "password"))
        relay = await scene.start(database=url, **SMALL, **HTTP)

        async def fault() -> None:
            scene.producer.fault(WINDOW)
            await alter(scene, user, "another")
            await refused(relay, "database_down", "PostgreSQL refused the password", "relay_database_up", by=password)
            await alter(scene, user, password)
            await shows(relay, "relay_database_up", 1)

        await play(scene, fault, relay)
        await scene.check(relay, timed=False)


@pytest.mark.fault(27, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C9")
async def test_a_rotated_broker_password_is_named_and_waited_for(scene: Scene) -> None:
    """As that of the database; no attempt is spent."""
    with user_of(scene.broker, scene.inbox.exchange, may_write=".*") as url:
        async with Proxy.before(url) as proxy:
            relay = await scene.start(broker=proxy.url(url), **SMALL, **HTTP)

            async def fault() -> None:
                await asyncio.to_thread(scene.broker.ctl, "change_password", scene.inbox.exchange, "another")
                scene.producer.fault(WINDOW)
                proxy.reset()
                await refused(relay, "broker_down", "refused user", "relay_broker_up", by=":secret")
                await until(lambda: tells(scene, f"{relay.name}: the broker is down or blocked"))
                await asyncio.to_thread(scene.broker.ctl, "change_password", scene.inbox.exchange, "secret")
                await relay.logged("broker_up", 2)

            await play(scene, fault, relay)
            await scene.check(relay, timed=False)
    assert 1 == await scene.queue.value("SELECT max(attempts) FROM queue_message_archive")


@pytest.mark.fault(27, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C9")
async def test_an_expired_certificate_of_the_broker_is_named_and_waited_for(scene: Scene, tmp_path: Path) -> None:
    """It expired yesterday, and connections that end cannot be made again: the sentence says so, until it is renewed."""
    authority = Authority(tmp_path)
    valid, expired = authority.issue("localhost"), authority.issue("localhost", expired=True)
    async with TlsFront(scene.broker.port, valid) as front:
        relay = await scene.start(broker=f"amqps://guest:guest@localhost:{front.port}/?cafile={authority.file}", **SMALL, **HTTP)

        async def fault() -> None:
            scene.producer.fault(WINDOW)
            front.show(expired)
            await refused(relay, "broker_down", "expired", "relay_broker_up", by="guest:guest")
            front.show(valid)
            await relay.logged("broker_up", 2)

        await play(scene, fault, relay)
        await scene.check(relay, timed=False)


@pytest.fixture
def tls(own_postgres: devservers.Postgres, tmp_path: Path, scene: Scene) -> Iterator[tuple[TlsPostgres, Authority]]:
    """The database's server with TLS, for as long as this test needs it."""
    authority = Authority(tmp_path)
    yield TlsPostgres(own_postgres, authority), authority
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET ssl")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.fault(27, repeats=20)
@pytest.mark.ids("C9")
async def test_an_expired_certificate_of_the_database_is_named_and_waited_for(scene: Scene, tls: tuple[TlsPostgres, Authority]) -> None:
    """As that of the broker."""
    server, authority = tls
    place = scene.queue.url.replace("@127.0.0.1", "@localhost")
    relay = await scene.start(database=f"{place}?sslmode=verify-full&sslrootcert={authority.file}", **SMALL, **HTTP)

    async def fault() -> None:
        await asyncio.to_thread(server.show, authority.issue("localhost", expired=True))
        scene.producer.fault(WINDOW)
        await scene.queue.sql(OFF)
        await refused(relay, "database_down", "certificate", "relay_database_up", by="postgres:")
        await asyncio.to_thread(server.show, authority.issue("localhost"))
        await shows(relay, "relay_database_up", 1)

    await play(scene, fault, relay)
    await scene.check(relay, timed=False)


@pytest.fixture(scope="session")
def narrow_postgres() -> Iterator[Postgres]:
    """A private server with few connections, of which some are the superuser's, who is the application here."""
    with Postgres(settings=["max_connections=24", "superuser_reserved_connections=8"]) as server:
        yield server


async def take_all(url: str, hogs: list[psycopg.AsyncConnection[Any]]) -> None:
    """Open connections until the server has none left."""
    with suppress(psycopg.OperationalError):
        while True:
            hogs.append(await psycopg.AsyncConnection.connect(url, application_name="hog"))


async def close_all(hogs: list[psycopg.AsyncConnection[Any]]) -> None:
    """Give them back."""
    while hogs:
        await hogs.pop().close()


@pytest.mark.fault(28, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("C9")
async def test_without_a_connection_left_at_postgresql_the_relay_waits(
    scene: Scene, narrow_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Others take every connection, before the relay starts and after it lost its own: it says so, asks rarely, and then continues."""
    hogs: list[psycopg.AsyncConnection[Any]] = []
    async with moved(scene, narrow_postgres, tmp_path_factory.mktemp("elsewhere")) as scene:  # noqa: PLR1704 - the same scene elsewhere
        with login(scene.queue.url, "queue_message_relay") as url:
            await take_all(url, hogs)
            relay = await scene.relays.start(database=url, broker=scene.broker.url, settings={**SMALL, **HTTP}, ready=False)
            await refused(relay, "database_down", "PostgreSQL has no connection left", "relay_database_up", by=url)
            await close_all(hogs)
            await relay.logged("broker_up")

            async def fault() -> None:
                scene.producer.fault(WINDOW)
                relay.send(signal.SIGSTOP)
                await scene.queue.sql(OFF)
                await until(lambda: scene.is_gone(relay))
                await take_all(url, hogs)
                relay.send(signal.SIGCONT)
                await refused(relay, "database_down", "PostgreSQL has no connection left", "relay_database_up", by=url)
                assert max(line["attempt"] for line in relay.of("database_down")) < 20
                await close_all(hogs)
                await shows(relay, "relay_database_up", 1)

            await play(scene, fault, relay)
            await scene.check(relay, timed=False)
