"""A password that is changed while the relay works: its file is read again, the relay continues, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.ledgers import Producer
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.shared import Databases

WINDOW = 200
THEIRS = "FROM pg_stat_activity WHERE usename = 'rotated'"
DATABASE, LISTEN, BROKER = "RELAY_DATABASE_URL", "RELAY_LISTEN_URL", "RELAY_AMQP_URL"


@dataclass
class Rotation:
    """Servers on which a relay has logins of its own, whose URLs stand in files, and a producer."""

    relays: Relays
    queue: Queue
    broker: devservers.RabbitMQ
    topology: Topology
    inbox: Declared
    producer: Producer
    folder: Path

    async def start(self) -> RelayProcess:
        """Start a relay with the first passwords."""
        self.write("first", DATABASE, LISTEN, BROKER)
        files = {f"{name}_FILE": str(self.folder / name) for name in (DATABASE, LISTEN, BROKER)}
        relay = await self.relays.start(database="", broker="", settings={**files, "RELAY_WINDOW": str(WINDOW), "RELAY_BATCH_SIZE": "100"})
        await relay.logged("listen_up")
        return relay

    def write(self, password: str, *names: str) -> None:
        """Write URLs with this password as a secret store does, whole, by a rename."""
        for name in names:
            _, _, place = (self.broker.url if name == BROKER else self.queue.url).partition("@")
            new = self.folder / f"{name}.new"
            new.write_text(f"{'amqp' if name == BROKER else 'postgresql'}://rotated:{password}@{place}\n")
            new.rename(self.folder / name)

    async def cut_database(self) -> None:
        """End the relay's connections to PostgreSQL: the three of its statements, and LISTEN."""

        async def all_are_there() -> bool:
            return int(await self.queue.value(f"SELECT count(*) {THEIRS}")) == 4

        await until(all_are_there, 60)
        self.producer.fault(WINDOW)
        await self.queue.sql(f"SELECT pg_terminate_backend(pid) {THEIRS}")

    def cut_broker(self) -> None:
        """End the relay's connection to the broker."""
        self.producer.fault(WINDOW)
        self.broker.ctl("close_all_user_connections", "rotated", "rotation")

    async def goes_on(self) -> None:
        """Wait until as many messages were sent as are committed now, some of them just now."""
        await self.producer.insert(100, ordered=False)
        committed = self.producer.committed

        async def are_sent() -> bool:
            return len(await self.queue.results()) >= committed

        await until(are_sent, 60)

    async def check(self, relay: RelayProcess) -> None:
        """Stop in order, and expect that everything adds up."""
        await self.queue.settled(seconds=60)
        assert 0 == await relay.stop()
        report = await self.producer.report(self.queue, self.topology, self.inbox.queue)
        assert [] == report.mismatches(recovery_limit=None), report
        assert report.committed == report.delivered > 0
        assert not [line for line in relay.lines if "rotated:" in str(line)], "a password was logged"


@pytest.fixture
async def rotation(
    relays: Relays,
    own_broker: devservers.RabbitMQ,
    own_topology: Topology,
    preparing_server: devservers.Postgres,
    chance: random.Random,
    tmp_path: Path,
) -> AsyncIterator[Rotation]:
    """Logins with the password `first`, and load from the start to the end of a test."""
    databases = Databases(preparing_server.url)
    name = databases.create()
    migrate(databases.url(name))
    own_broker.ctl("add_user", "rotated", "first")
    own_broker.ctl("set_permissions", "-p", "/", "rotated", "", ".*", "")
    inbox = await own_topology.declare()
    async with await psycopg.AsyncConnection.connect(databases.url(name), autocommit=True) as connection:
        queue = Queue(databases.url(name), connection)
        await queue.sql("CREATE ROLE rotated LOGIN PASSWORD 'first'")
        await queue.sql("SELECT queue_message_admit('relay', 'rotated')")
        with Producer(queue.url, inbox.exchange, tmp_path, chance) as producer:
            yield Rotation(relays, queue, own_broker, own_topology, inbox, producer, tmp_path)
        await relays.close()
        await queue.sql("DROP ROLE rotated")
    own_broker.ctl("delete_user", "rotated")
    databases.drop(name)


async def test_a_new_password_of_the_database_needs_no_restart(rotation: Rotation) -> None:
    """The server changes first, its file later: meanwhile the relay says what is wrong, and then it continues, including LISTEN."""
    relay = await rotation.start()
    producing = asyncio.create_task(rotation.producer.run())
    await rotation.goes_on()
    await rotation.queue.sql("ALTER ROLE rotated PASSWORD 'second'")
    await rotation.cut_database()
    down = await relay.logged("database_down")
    while "refused the password" not in down["error"]:
        down = await relay.logged("database_down", len(relay.of("database_down")) + 1)
    rotation.write("second", DATABASE, LISTEN)

    await relay.logged("secret_changed", 2, seconds=60)
    await relay.logged("database_up", seconds=60)
    await rotation.goes_on()
    await relay.logged("listen_up", 2, seconds=90)
    rotation.producer.stop()
    await producing
    assert {"database_url", "listen_url"} == {line["setting"] for line in relay.of("secret_changed")}
    await rotation.check(relay)


async def test_a_new_password_of_the_broker_needs_no_restart(rotation: Rotation) -> None:
    """The server changes first, its file later: meanwhile the relay says what is wrong, and then it continues."""
    relay = await rotation.start()
    producing = asyncio.create_task(rotation.producer.run())
    await rotation.goes_on()
    rotation.broker.ctl("change_password", "rotated", "second")
    rotation.cut_broker()
    down = await relay.logged("broker_down")
    while "refused user 'rotated'" not in down["error"]:
        down = await relay.logged("broker_down", len(relay.of("broker_down")) + 1)
    rotation.write("second", BROKER)

    assert "amqp_url" == (await relay.logged("secret_changed", seconds=60))["setting"]
    await relay.logged("broker_up", 2, seconds=60)
    await rotation.goes_on()
    rotation.producer.stop()
    await producing
    await rotation.check(relay)


async def test_files_written_before_the_servers_change_break_nothing(rotation: Rotation) -> None:
    """Connections that stand are left alone; the new passwords are used when they end."""
    relay = await rotation.start()
    rotation.write("second", DATABASE, LISTEN, BROKER)
    await rotation.goes_on()
    assert [] == relay.of("secret_changed")
    await rotation.queue.sql("ALTER ROLE rotated PASSWORD 'second'")
    rotation.broker.ctl("change_password", "rotated", "second")
    await rotation.cut_database()
    rotation.cut_broker()

    await relay.logged("secret_changed", 3, seconds=60)
    await rotation.goes_on()
    await rotation.check(relay)


async def test_files_that_are_gone_leave_what_they_held(rotation: Rotation) -> None:
    """The relay connects with the last passwords, and says so once for each file, however often it connects."""
    relay = await rotation.start()
    (rotation.folder / BROKER).write_text("nonsense")
    for name in (DATABASE, LISTEN):
        (rotation.folder / name).unlink()
    for _ in range(2):
        await rotation.cut_database()
        rotation.cut_broker()
        await rotation.goes_on()
        await relay.logged("listen_up", len(relay.of("listen_down")) + 1, seconds=60)

    told = {line["setting"]: line["error"] for line in relay.of("secret_kept")}
    assert 3 == len(relay.of("secret_kept"))
    assert told["amqp_url"].startswith("RELAY_AMQP_URL_FILE is not usable (not shown): it must be an AMQP URL")
    assert all("No such file or directory" in told[name] for name in ("database_url", "listen_url"))
    await rotation.check(relay)
