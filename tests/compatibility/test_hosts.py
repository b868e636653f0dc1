"""Several hosts in both URLs: the first that will do is used, and the next when that one goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from relay import devservers
from relay.devservers.process import free_ports, poll
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Databases, Say
from tests.support.servers.standby import Standby

WRITABLE = "?target_session_attrs=read-write"
REPLAYED = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"


def at(url: str, *ports: int) -> str:
    """The same URL with other ports of this machine for its host and port, in this order."""
    parts = urlsplit(url)
    login, _, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login}@{','.join(f'127.0.0.1:{port}' for port in ports)}").geturl()


def port_of(url: str) -> int:
    """The port in a URL."""
    port = urlsplit(url).port
    assert port is not None
    return port


async def deliver(queue: Queue, topology: Topology, inbox: Declared, count: int = 10) -> None:
    """What is inserted comes to the queue, once, and is archived."""
    sent = await queue.insert(count, exchange=inbox.exchange, routing_key=inbox.routing_key)
    came = [str(message.headers["x-relay-id"]) for message in await topology.drain(inbox.queue, count, seconds=60)]
    await queue.settled(seconds=60)
    assert sorted(sent) == sorted(came)
    assert set(dict.fromkeys(sent, "success").items()) <= set((await queue.results()).items())


async def test_a_database_host_that_is_down_is_passed_over(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """Claims, settles and LISTEN all find the second host of the URL."""
    [nobody] = free_ports(1)
    relay = await relays.start(database=at(queue.url, nobody, port_of(queue.url)), broker=amqp_url)
    await relay.logged("listen_up")
    await deliver(queue, topology, inbox)
    assert [] == relay.of("database_down")
    assert 0 == await relay.stop()


@pytest.fixture
def primary(say: Say) -> Iterator[devservers.Postgres]:
    """A server to be followed, and to be killed, with a queue in a database of its own."""
    with devservers.postgres(say=say, private=True) as server:
        yield server


@pytest.fixture
def replicated(primary: devservers.Postgres) -> str:
    """URL of a database with the schema, on the primary."""
    databases = Databases(primary.url)
    url = databases.url(databases.create())
    migrate(url)
    return url


@pytest.fixture
def standby(primary: devservers.Postgres, replicated: str) -> Iterator[Standby]:
    """Follows the primary, and has all of it."""
    with Standby(primary) as server:
        yield server


def fail_over(primary: devservers.Postgres, standby: Standby) -> None:
    """The primary dies at one blow, the standby takes its place with everything that was committed."""
    with psycopg.connect(primary.url) as first:
        [lsn] = first.execute("SELECT pg_current_wal_flush_lsn()").fetchone() or [None]
    with psycopg.connect(standby.url, autocommit=True) as second:
        assert poll(lambda: second.execute(REPLAYED, [lsn]).fetchone() == (True,), seconds=60)
        primary.crash()
        assert second.execute("SELECT pg_promote()").fetchone() == (True,)


@pytest.mark.slow
async def test_a_read_only_host_is_passed_over_until_it_is_promoted(
    relays: Relays, primary: devservers.Postgres, standby: Standby, replicated: str, own_broker: devservers.RabbitMQ, own_topology: Topology
) -> None:
    """The standby is first in the URL. What is in flight when the primary dies is settled on the standby: nothing lost, none twice."""
    inbox = await own_topology.declare()
    both = at(replicated, standby.port, primary.port) + WRITABLE
    relay = await relays.start(database=both, broker=own_broker.url, settings={"RELAY_LOCK_SECONDS": "60"})
    async with await psycopg.AsyncConnection.connect(replicated, autocommit=True) as connection:
        queue = Queue(replicated, connection)
        await queue.sql("SELECT queue_message_config_set('lock_seconds', '60')")
        await deliver(queue, own_topology, inbox)
        own_broker.freeze()
        sent = await queue.insert(50, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await until(lambda: holds(queue, 50))
        await asyncio.to_thread(fail_over, primary, standby)
    await relay.logged("listen_up", 2, seconds=60)
    own_broker.thaw()

    promoted = at(replicated, standby.port)
    async with await psycopg.AsyncConnection.connect(promoted, autocommit=True) as connection:
        queue = Queue(promoted, connection)
        await queue.settled(seconds=60)
        assert sorted(sent) == sorted([str(m.headers["x-relay-id"]) for m in await own_topology.drain(inbox.queue, len(sent))])
        await deliver(queue, own_topology, inbox)
        assert {"success"} == set((await queue.results()).values())
    assert 0 == await relay.stop()


async def holds(queue: Queue, count: int) -> bool:
    """So many messages are locked."""
    return bool(await queue.value("SELECT count(*) >= %s FROM queue_message WHERE lock_expires_at IS NOT NULL", count))


async def test_a_read_only_host_alone_is_named(relays: Relays, standby: Standby, replicated: str, amqp_url: str) -> None:
    """Without target_session_attrs a relay on a standby says that it is one, and what to write."""
    relay = await relays.start(database=at(replicated, standby.port), broker=amqp_url, ready=False)
    down = await relay.logged("database_down", seconds=60)
    assert "PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary (target_session_attrs=read-write)" in down["error"]


@pytest.fixture
async def two(amqp_url: str) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """Two ways to the broker."""
    async with Proxy.before(amqp_url) as first, Proxy.before(amqp_url) as second:
        yield first, second


async def test_a_broker_that_is_down_is_passed_over(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """The log names the host that did not answer, and the one that is used."""
    [nobody] = free_ports(1)
    relay = await relays.start(database=queue.url, broker=at(amqp_url, nobody, port_of(amqp_url)))
    await deliver(queue, topology, inbox)
    assert f"The broker at 127.0.0.1:{nobody} is not reachable" in relay.of("broker_down")[0]["error"]
    assert f"127.0.0.1:{port_of(amqp_url)}" == relay.of("broker_up")[0]["host"]


async def test_a_broker_that_goes_is_followed_by_the_next(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, two: tuple[Proxy, Proxy]
) -> None:
    """From host to host in their order, and from the last to the first again; the log names the one that is lost."""
    relay = await relays.start(database=queue.url, broker=at(amqp_url, *(proxy.port for proxy in two)))
    for turn, (here, there) in enumerate([two, two[::-1]], start=1):
        await deliver(queue, topology, inbox)
        await here.stop_listening()
        here.reset()
        assert f"127.0.0.1:{there.port}" == (await relay.logged("broker_up", turn + 1))["host"]
        assert f"127.0.0.1:{here.port}" in relay.of("broker_down")[-1]["error"]
        await here.listen()
    await deliver(queue, topology, inbox)
    assert [2, 1] == [proxy.connections for proxy in two]
