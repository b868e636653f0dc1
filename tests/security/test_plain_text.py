"""Connections that others could read or take over: each is logged once, and options that ask for less are refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.database.queue import Queue, until
from tests.support.network import network_namespace
from tests.support.relays.processes import COMMAND, RelayProcess, Relays
from tests.support.servers.certificates import Authority, TlsPostgres
from tests.support.servers.shared import Databases

APART = ("/usr/bin/unshare", "--user", "--map-root-user", "--net")
PORTS = {"postgres": 5432, "plain": 5672, "tls": 5671}
THEIRS = "FROM pg_stat_activity WHERE starts_with(application_name, 'outbox-relay/')"
WITHOUT_TLS = f"at {network_namespace.ADDRESS} is without TLS, so password and messages can be read on their way: write "


@dataclass
class Elsewhere:
    """A relay's machine, from which both servers are on another one."""

    relays: Relays
    database: str
    broker: devservers.RabbitMQ

    async def start(self, database: str, broker: str, **settings: str) -> RelayProcess:
        """Start a relay there; options follow the two URLs."""
        return await self.relays.start(database=self.database + database, broker=self._broker(broker), settings=settings)

    async def refused(self, database: str, broker: str) -> list[str]:
        """Start a relay that refuses its settings; return the sentences."""
        relay = await self.relays.start(database=self.database + database, broker=self._broker(broker), ready=False)
        assert 2 == await relay.ended(60)
        return [line["text"] for line in relay.lines]

    def _broker(self, options: str) -> str:
        scheme, port = ("amqps", PORTS["tls"]) if options else ("amqp", PORTS["plain"])
        return f"{scheme}://guest:guest@{network_namespace.ADDRESS}:{port}/{options}"


@pytest.fixture
def network() -> None:
    """Where the system lets anybody make a network of his own."""
    if subprocess.run([*APART, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no network of its own can be made here: unshare --user --net is refused")


@pytest.fixture
async def apart(network: None, tls_postgres: TlsPostgres, tls_broker: devservers.RabbitMQ, tmp_path: Path) -> AsyncIterator[Elsewhere]:
    """A relay's machine apart from the servers'."""
    del network
    databases = Databases(tls_postgres.server.url)
    name = databases.create()
    migrate(databases.url(name))
    with tempfile.TemporaryDirectory(prefix="relay-") as folder:
        ports = {PORTS["postgres"]: tls_postgres.server.port, PORTS["plain"]: tls_broker.port, PORTS["tls"]: tls_broker.tls_port}
        joined: set[asyncio.Task[None]] = set()
        servers = [await lend(Path(folder) / str(port), real, joined) for port, real in ports.items()]
        relays = Relays((*APART, sys.executable, network_namespace.__file__, folder, *COMMAND), tmp_path)
        there = databases.url(name).replace(f"@127.0.0.1:{tls_postgres.server.port}", f"@{network_namespace.ADDRESS}:{PORTS['postgres']}")
        yield Elsewhere(relays, there, tls_broker)
        await relays.close()
        for server in servers:
            server.close()
        for task in joined:
            task.cancel()
        await asyncio.gather(*joined, return_exceptions=True)
    databases.drop(name)


async def lend(path: Path, port: int, joined: set[asyncio.Task[None]]) -> asyncio.Server:
    """A socket that leads to a port of loopback; `joined` has what passes on, until it ends."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await network_namespace.pipe((reader, writer), (far_reader, far_writer))
        finally:
            # Else an end that is open when the loop closes is a warning in whichever test comes next.
            for end in (writer, far_writer):
                end.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(join(reader, writer))
        joined.add(task)
        task.add_done_callback(joined.discard)

    return await asyncio.start_unix_server(accept, path)


def risks(relay: RelayProcess) -> list[str]:
    """The logged risks of connections, in alphabetical order."""
    assert {"warning"} >= {line["level"] for line in relay.of("connection_insecure")}
    return sorted(line["risk"] for line in relay.of("connection_insecure"))


async def test_plain_text_to_another_machine_is_told_once(apart: Elsewhere, tls_postgres: TlsPostgres) -> None:
    """Each server is logged once, although the relay has four connections to one of them and opens all of them again."""
    relay = await apart.start("?sslmode=disable", "", RELAY_ALLOW_INSECURE="true")
    await relay.logged("listen_up")
    async with await psycopg.AsyncConnection.connect(tls_postgres.server.url, autocommit=True) as connection:
        queue = Queue("", connection)
        before = await queue.value(f"SELECT array_agg(pid) {THEIRS}")
        await queue.sql(f"SELECT pg_terminate_backend(pid) {THEIRS}")
        apart.broker.ctl("close_all_connections", "test")

        async def claims_and_listens() -> bool:
            """An idle relay needs no new connection to settle on."""
            return int(await queue.value(f"SELECT count(*) {THEIRS} AND pid <> ALL(%s)", before)) >= len(before) - 1 >= 3

        await until(claims_and_listens, 60)
    await relay.logged("broker_up", 2)

    database, broker = risks(relay)
    assert database == f"The connection to PostgreSQL {WITHOUT_TLS}sslmode=verify-full and sslrootcert=... into its URL."
    assert broker == f"The connection to the broker {WITHOUT_TLS}amqps://."


async def test_certificates_that_are_not_checked_are_told(apart: Elsewhere, authority: Authority) -> None:
    """The connection is encrypted, but for any server that answers there."""
    shown = authority.issue("relay")
    files = f"&certfile={shown.certificate}&keyfile={shown.key}"
    relay = await apart.start("?sslmode=require", f"?no_verify_ssl=1{files}", RELAY_ALLOW_INSECURE="true")

    broker, database = risks(relay)
    assert f"does not check that it is {network_namespace.ADDRESS} that answers (sslmode=require)" in database
    assert broker.startswith(f"Any server that answers at {network_namespace.ADDRESS} is taken for the broker (no_verify_ssl)")


async def test_what_is_checked_is_not_told(apart: Elsewhere, authority: Authority) -> None:
    """On both ways the certificate has the server's address, and an authority that the relay trusts."""
    shown = authority.issue("relay")
    files = f"?cafile={authority.file}&certfile={shown.certificate}&keyfile={shown.key}"
    relay = await apart.start(f"?sslmode=verify-full&sslrootcert={authority.file}", files)
    await relay.logged("listen_up")

    assert [] == risks(relay)


async def test_options_that_ask_for_less_are_refused(apart: Elsewhere) -> None:
    """Without the switch the relay does not start: one sentence for each of the two URLs."""
    database, broker = await apart.refused("?sslmode=disable", "?no_verify_ssl=1")

    assert database.startswith("RELAY_DATABASE_URL has an option that weakens security (sslmode=disable)")
    assert broker.startswith("RELAY_AMQP_URL has an option that weakens security (no_verify_ssl=1)")


async def test_plain_text_on_this_machine_is_not_told(relays: Relays, database_url: str, amqp_url: str) -> None:
    """Names and addresses of loopback; nothing leaves the machine."""
    relay = await relays.start(database=database_url.replace("127.0.0.1", "localhost"), broker=amqp_url.replace("127.0.0.1", "localhost"))
    await relay.logged("listen_up")

    assert [] == risks(relay)
