"""A queue that is brought back to a moment of its past, and one that a newer PostgreSQL takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.faults.moved_clusters import Archiving, Recovered, Upgraded, major_of, newer_than
from tests.support.broker.topology import Declared, Topology
from tests.support.database.foreign import renumber
from tests.support.relays.processes import Relays
from tests.support.relays.sent import Sent, queue_at
from tests.support.servers.postgres_clusters import Cluster

SHORT = {"RELAY_POLL_INTERVAL": "1"}
MOMENT = "before"


@pytest.mark.fault(35, repeats=3)
@pytest.mark.ids("C9")
async def test_a_recovery_to_a_moment_loses_nothing_of_before(
    relays: Relays, own_broker: devservers.RabbitMQ, own_topology: Topology, inbox: Declared
) -> None:
    """What was sent since may come again; a relay that ran before connects again, and new messages come behind."""
    before, since, after = (Sent(own_topology, inbox) for _ in range(3))
    with Archiving() as old:
        migrate(old.url)
        url = old.new()
        async with queue_at(url) as queue:
            await queue.sql("SELECT queue_message_pause(%s)", inbox.exchange)
            relay = await relays.start(database=url, broker=own_broker.url, settings=SHORT)
            await before.insert(queue, 5, unkeyed=True)
            backup = await asyncio.to_thread(old.back_up)
            await before.insert(queue, 5, unkeyed=True)
            await queue.sql("SELECT pg_create_restore_point(%s)", MOMENT)
            await queue.sql("SELECT queue_message_resume(%s)", inbox.exchange)
            await since.insert(queue, 10, unkeyed=True)
            await queue.settled()
        await asyncio.to_thread(old.stop)
        with Recovered(old, backup, MOMENT):
            await relay.logged("database_up")
            async with queue_at(url) as queue:
                assert len(before.ids) == await queue.waiting()
                # No relay may have noted this cluster before the moment: then the first look is still to come.
                assert (0, []) == (await renumber(queue), relay.of("messages_renumbered"))
                await queue.sql("SELECT queue_message_resume(%s)", inbox.exchange)
                await after.insert(queue, 10, unkeyed=True)
                await queue.settled()
                assert 0 == await relay.stop()

    came = [str(message.headers["x-relay-id"]) for message in await own_topology.drain(inbox.queue)]
    for one in (before, since, after):
        one.in_order(came)
    assert sorted([*before.ids, *before.ids, *since.ids, *after.ids]) == sorted(came)


@pytest.fixture
def old() -> Iterator[Cluster]:
    """A cluster of the installed PostgreSQL whose transaction ids are beyond 2^32."""
    with Cluster() as cluster:
        migrate(cluster.url)
        cluster.raise_ids(1)
        yield cluster


@pytest.mark.fault(35, repeats=3)
@pytest.mark.ids("C9")
async def test_a_queue_that_pg_upgrade_takes_over_goes_out_in_order(
    old: Cluster, relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """The new cluster has another name and the same ids: nothing is renumbered, and what is inserted there comes behind."""
    if (newer := newer_than(old)) is None:
        pytest.skip("no newer PostgreSQL with pg_upgrade is here")
    url = old.new()
    async with queue_at(url) as queue:
        await sent.insert(queue, 20, unkeyed=True)
        name = await queue.value("SELECT system_identifier FROM pg_control_system()")
    await asyncio.to_thread(old.stop)
    with Upgraded(old, newer) as new:
        url = new.databases.url(url.rpartition("/")[2])
        async with queue_at(url) as queue:
            assert name != await queue.value("SELECT system_identifier FROM pg_control_system()")
            assert major_of(newer) * 10_000 <= int(await queue.value("SHOW server_version_num"))
            await sent.insert(queue, 10, unkeyed=True)
            relay = await relays.start(database=url, broker=own_broker.url, settings=SHORT)
            await queue.settled()
            assert [] == relay.of("messages_renumbered")
            assert 0 == await relay.stop()
    await sent.all_came_in_order()
