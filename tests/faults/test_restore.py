"""Messages that a dump or a logical copy brings into another cluster: all go out, keys in order, before what is inserted there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.database.foreign import renumber
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.sent import Sent, queue_at
from tests.support.servers.postgres_clusters import Cluster
from tests.support.servers.standby import Standby

REFUSES = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the tenant is frozen'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON queue_message FOR EACH ROW WHEN (OLD.id = '{}') EXECUTE FUNCTION refuse()
"""
SHORT = {"RELAY_POLL_INTERVAL": "1"}


async def start(relays: Relays, queue: Queue, broker: devservers.RabbitMQ, name: str = "relay") -> RelayProcess:
    """Start a relay between this queue and the broker."""
    return await relays.start(name, database=queue.url, broker=broker.url, settings=SHORT)


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_restored_messages_go_out_before_new_ones(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """From a cluster with high ids to one with low ids, with locks of a relay that is no more."""
    high, low = clusters
    source, target = high.new(), low.new(schema=False)
    async with queue_at(source) as queue:
        await sent.insert(queue, 30)
        await queue.sql(
            "UPDATE queue_message SET lock_expires_at = now() + interval '1 s', lock_token = gen_random_uuid(), locked_by = 9, "
            "attempts = 1 WHERE id = ANY(%s::uuid[])",
            [sent.keys["a"][0]],
        )
    await asyncio.to_thread(low.restore, source, target)
    async with queue_at(target) as queue:
        await sent.insert(queue, 10)
        with pytest.raises(AssertionError, match="of another cluster"):
            await asyncio.to_thread(assert_nothing_is_lost, target)
        relay = await start(relays, queue, own_broker)
        assert 90 == sum(line["messages"] for line in relay.of("messages_renumbered"))

        # No relay may free the old relay's lock early; the sweep of the minute finds it.
        await queue.settled(seconds=120)
    await sent.all_came_in_order()


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_there_and_back_again_keeps_the_order(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """High to low to high to low: each cluster adds its own, and only where ids are lower is anything renumbered."""
    high, low = clusters
    url = high.new()
    for step, cluster in enumerate((low, high, low)):
        async with queue_at(url) as queue:
            await sent.insert(queue, 10)
        target = cluster.new(schema=False)
        await asyncio.to_thread(cluster.restore, url, target)
        async with queue_at(target) as queue:
            await sent.insert(queue, 3)
            said: list[str] = []
            await asyncio.to_thread(migrate, target, say=said.append)
            assert (step != 1) == bool(said)
        url = target
    async with queue_at(url) as queue:
        await start(relays, queue, own_broker)
        await queue.settled()
    await sent.all_came_in_order()


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_a_dump_restored_into_a_running_queue_is_delivered(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """The relay finds it within a minute, without a new start."""
    high, low = clusters
    source, target = high.new(), low.new()
    async with queue_at(source) as queue:
        await sent.insert(queue, 20)
    async with queue_at(target) as queue:
        await start(relays, queue, own_broker)

        await asyncio.to_thread(low.restore, source, target, "--data-only", "--disable-triggers", "-t", "queue_message")

        await queue.settled(seconds=120)
        assert not await queue.value("SELECT queue_message_has_foreign_ids()")
    await sent.all_came_in_order()


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_restored_messages_go_past_one_that_a_trigger_refuses(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """The relay sends all others, and this one when the trigger lets it."""
    high, low = clusters
    source, target = high.new(), low.new()
    async with queue_at(source) as queue:
        await sent.insert(queue, 20, unkeyed=True)
    async with queue_at(target) as queue:
        await queue.sql(REFUSES.format(sent.unkeyed[5]))
        relay = await start(relays, queue, own_broker)
        await asyncio.to_thread(low.restore, source, target, "--data-only", "--disable-triggers", "-t", "queue_message")

        await queue.settled(1, seconds=120)
        line = await relay.logged("maintenance_failed")
        assert f"message {sent.unkeyed[5]} stays: the tenant is frozen" in line["error"]
        await queue.sql("DROP TRIGGER refuse ON queue_message")
        await queue.settled(seconds=120)
    await sent.all_came_in_order()


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_after_a_logical_switchover_everything_goes_out(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """The subscriber has the rows without the sequences; as long as it is one, nothing is renumbered."""
    high, low = clusters
    source, target = high.new(), low.new()
    tables = "queue_message, queue_message_relay, queue_message_keyed_row"
    async with queue_at(source) as publisher, queue_at(target) as queue:
        await publisher.sql(f"CREATE PUBLICATION outbox FOR TABLE {tables}")
        await publisher.sql(
            "INSERT INTO queue_message_relay (name, version, host, pid, heartbeat_at) VALUES ('old', '1', 'h', 1, now() - interval '1 h')"
        )
        await sent.insert(publisher, 10)
        await queue.sql(f"CREATE SUBSCRIPTION outbox CONNECTION '{source}' PUBLICATION outbox")
        await sent.insert(publisher, 10)
        await until(lambda: holds(queue, 60))
        await asyncio.to_thread(migrate, target)
        assert not await queue.value("SELECT queue_message_has_foreign_ids()")
        assert 0 == await queue.value("SELECT count(*) FROM queue_message WHERE xid = '2'")

        await queue.sql("DROP SUBSCRIPTION outbox")
        await sent.insert(queue, 5)
        await start(relays, queue, own_broker)

        await queue.settled()
    await sent.all_came_in_order()


async def holds(queue: Queue, count: int) -> bool:
    """So many messages have come."""
    return await queue.waiting() == count


@pytest.mark.fault(34, repeats=3)
@pytest.mark.ids("C9")
async def test_a_blocked_key_of_a_dump_starves_nobody(
    clusters: tuple[Cluster, Cluster], relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent
) -> None:
    """6,000 restored messages stand behind a head that waits: others go out at once, restored or new."""
    high, low = clusters
    source, target = high.new(), low.new(schema=False)
    async with queue_at(source) as queue:
        await queue.insert(**sent.to, ordering_key="blocked", available_at=datetime.now(UTC) + timedelta(days=365))
        await queue.insert(6000, **sent.to, ordering_key="blocked")
        await sent.insert(queue, 10)
    await asyncio.to_thread(low.restore, source, target)
    async with queue_at(target) as queue:
        await start(relays, queue, own_broker)
        await sent.insert(queue, 10)
        await queue.settled(left=6001)
    await sent.all_came_in_order()


@pytest.mark.fault(34, repeats=3)
async def test_a_promoted_standby_has_no_foreign_ids(clusters: tuple[Cluster, Cluster]) -> None:
    """The same log carries the rows and the next transaction id: no row is above that id, however far a standby lagged."""
    high, _ = clusters
    source = high.new()
    async with queue_at(source) as queue:
        await queue.insert(100)
        assert 0 == await renumber(queue)
    with Standby(high) as standby:
        standby.promote()
        async with queue_at(standby.url.rpartition("/")[0] + source[source.rindex("/") :]) as queue:
            assert 100 == await queue.waiting()
            assert not await queue.value("SELECT queue_message_has_foreign_ids()")
