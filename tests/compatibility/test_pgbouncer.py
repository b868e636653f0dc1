"""PgBouncer in transaction mode between the relay and each version of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue
from tests.support.relays.processes import Relays
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.shared import Say


async def test_a_relay_works_through_pgbouncer_in_transaction_mode(
    relays: Relays, queue: Queue, topology: Topology, inbox: Declared, amqp_url: str, tmp_path: Path, say: Say
) -> None:
    """Without prepared statements, and with LISTEN past it: ordered and other messages arrive once, and a stop leaves nothing behind."""
    with pgbouncer(queue.url, pool_mode="transaction", folder=tmp_path, say=say) as pooled:
        settings = {"RELAY_PREPARE": "false", "RELAY_LISTEN_URL": queue.url}
        relay = await relays.start(database=pooled, broker=amqp_url, settings=settings)
        await relay.logged("listen_up")
        to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
        keyed = [id_ for _ in range(10) for id_ in await queue.insert(**to, ordering_key="key")]
        sent = [*keyed, *await queue.insert(100, **to)]
        came = [str(message.headers["x-relay-id"]) for message in await topology.drain(inbox.queue, len(sent), seconds=60)]
        await queue.settled(seconds=60)

        assert sorted(sent) == sorted(came)
        assert keyed == [id_ for id_ in came if id_ in set(keyed)]
        assert dict.fromkeys(sent, "success") == await queue.results()
        assert 0 == await relay.stop()
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_relay")
