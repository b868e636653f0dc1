"""What `relay status` says while relays are alive and nothing goes out. It reads only the database, and needs no log."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login

ROLE = "queue_message_relay"


@pytest.mark.parametrize(
    ("privilege", "says"),
    [
        ("UPDATE (lock_token) ON queue_message", "relay: The relay's role lacks a permission"),
        ("INSERT ON queue_message_archive", "relay: What was sent cannot be settled: The relay's role lacks a permission"),
    ],
)
async def test_a_permission_that_is_gone_is_named(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, unique: str, privilege: str, says: str
) -> None:
    """The one to claim, the one to settle; no longer when it is there again and all has gone out."""
    inbox = await topology.declare(unique, unique)
    with login(queue.url, ROLE) as url:
        relay = await relays.start(database=url, broker=amqp_url)
        role = await queue.value("SELECT queue_message_role('relay')")
        await queue.sql(f"REVOKE {privilege} FROM {role}")
        await queue.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key)

        async def is_told() -> bool:
            return says in await relays.command("status", database=queue.url)

        await until(is_told)
        await queue.sql(f"GRANT {privilege} TO {role}")
        await queue.settled()
        await until(lambda: _not(is_told()))
        await relay.stop()


async def _not(answer: Awaitable[bool]) -> bool:
    return not await answer
