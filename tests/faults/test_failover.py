"""A failover to a standby that lagged: transaction ids and numbers of sequences are given out a second time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.sent import Sent, queue_at
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.postgres_clusters import Cluster
from tests.support.servers.shared import Say
from tests.support.servers.standby import Standby

SHORT = {"RELAY_POLL_INTERVAL": "1"}
POOLED = {**SHORT, "RELAY_PREPARE": "false", "RELAY_NOTIFY": "off"}
BURN = "DO $$ BEGIN FOR number IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
"""Transactions of which the standby does not know: more than the test makes after the failover."""
NUMBERS = 40
"""More numbers than a sequence's entry in the log covers (32): the next ones are given out again after the failover."""
ROUND = 60.0
"""Seconds in which a round of the scrub has ended on any machine; the promise is 10 and a round of a short table."""


@pytest.fixture
def primary() -> Iterator[Cluster]:
    """A cluster of this test's own, to be lost."""
    with Cluster() as cluster:
        migrate(cluster.url)
        yield cluster


@asynccontextmanager
async def failed_over(primary: Cluster, standby: Standby, url: str, pooled: RelayProcess) -> AsyncIterator[Queue]:
    """The queue on the standby, at the primary's port; no statement of the relay behind the pool is under way meanwhile."""
    async with queue_at(url) as queue:
        pooled.send(signal.SIGSTOP)
        await until(lambda: answered(queue))
    await asyncio.to_thread(primary.stop, "immediate")
    await asyncio.to_thread(standby.take_over, primary.port)
    async with queue_at(url) as queue:
        yield queue


async def answered(queue: Queue) -> bool:
    """No other session of the database has a statement under way."""
    return not await queue.value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()"
    )


async def next_id(queue: Queue) -> int:
    """A transaction id that was not given out before."""
    return int(await queue.value("SELECT pg_current_xact_id()::text::bigint"))


async def kept_and_lost(queue: Queue, standby: Standby, kept: Sent, gone: Sent) -> int:
    """Messages that the standby has and that are sent afterwards, and messages and transactions of which it does not know; the last id."""
    await kept.insert(queue, 10, unkeyed=True)
    await asyncio.to_thread(standby.catch_up)
    await asyncio.to_thread(standby.lag)
    await queue.sql("SELECT queue_message_resume(%s)", kept.inbox.exchange)
    await queue.sql(BURN)
    await gone.insert(queue, 10, unkeyed=True)
    await queue.settled()
    return await next_id(queue)


@pytest.mark.fault(35, repeats=3)
@pytest.mark.ids("C9")
async def test_after_a_failover_to_a_standby_that_lagged_everything_goes_out(
    primary: Cluster, relays: Relays, own_broker: devservers.RabbitMQ, own_topology: Topology, inbox: Declared, tmp_path: Path, say: Say
) -> None:
    """One relay keeps its sessions through a pool, so its position is above the ids that come next; the other connects again."""
    kept, gone, fresh = (Sent(own_topology, inbox) for _ in range(3))
    url = primary.new()
    with Standby(primary) as standby, pgbouncer(url, pool_mode="transaction", folder=tmp_path, say=say) as through:
        async with queue_at(url) as queue:
            await queue.sql("SELECT queue_message_pause(%s)", inbox.exchange)
            pooled = await relays.start("pooled", database=through, broker=own_broker.url, settings=POOLED)
            highest = await kept_and_lost(queue, standby, kept, gone)
            direct = await relays.start("direct", database=url, broker=own_broker.url, settings=SHORT)
        async with failed_over(primary, standby, url, pooled) as queue:
            assert len(kept.ids) == await queue.waiting()
            for relay, outlives in ((pooled, True), (direct, False)):
                direct.send(signal.SIGSTOP if outlives else signal.SIGCONT)
                relay.send(signal.SIGCONT)
                await queue.sql("SELECT queue_message_resume(%s)", inbox.exchange)
                await fresh.insert(queue, 10, unkeyed=True)
                await queue.settled(seconds=ROUND)
                assert outlives == (not relay.of("database_down"))
                assert await next_id(queue) < highest
                assert 0 == await relay.stop()

    came = [str(message.headers["x-relay-id"]) for message in await own_topology.drain(inbox.queue)]
    for one in (kept, gone, fresh):
        one.in_order(came)
    assert sorted([*kept.ids, *kept.ids, *gone.ids, *fresh.ids]) == sorted(came)


@pytest.mark.fault(35, repeats=3)
@pytest.mark.ids("C9")
async def test_no_two_relays_are_one_after_a_failover(
    primary: Cluster, relays: Relays, own_broker: devservers.RabbitMQ, sent: Sent, tmp_path: Path, say: Say
) -> None:
    """A relay that a pool has kept has an id of which the standby does not know, and which is given out again."""
    url = primary.new()
    with Standby(primary) as standby, pgbouncer(url, pool_mode="transaction", folder=tmp_path, say=say) as through:
        await asyncio.to_thread(standby.catch_up)
        await asyncio.to_thread(standby.lag)
        async with queue_at(url) as queue:
            await queue.sql("SELECT nextval('queue_message_relay_id_seq') FROM generate_series(1, %s)", NUMBERS)
        pooled = await relays.start("pooled", database=through, broker=own_broker.url, settings=POOLED)
        async with failed_over(primary, standby, url, pooled) as queue:
            while await queue.value("SELECT nextval('queue_message_relay_id_seq')") < pooled.id - 1:
                pass
            other = await relays.start("other", database=url, broker=own_broker.url, settings=SHORT)
            assert pooled.id == other.id
            pooled.send(signal.SIGCONT)

            await until(lambda: both_are_known(queue))
            await sent.insert(queue, 30, unkeyed=True)
            await queue.settled(seconds=ROUND)
            assert {0} == {await pooled.stop(), await other.stop()}
    await sent.all_came_in_order()


async def both_are_known(queue: Queue) -> bool:
    """Two relays of different ids share the lanes."""
    shares = "SELECT count(*) FROM queue_message_lane l JOIN queue_message_relay r ON r.id = l.owner GROUP BY r.name"
    return [(32,), (32,)] == await queue.sql(shares)
