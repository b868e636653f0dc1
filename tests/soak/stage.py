"""What a soak is played on: two private servers with a proxy before each, a database, two exchanges and their queue, and the relays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.soak.fleet import SURVIVOR, VICTIM, Fleet, Life
from tests.support.broker.topology import Topology
from tests.support.database.queue import until
from tests.support.network.proxy import Proxy
from tests.support.servers.shared import Databases

LOCK_SECONDS = 10
WINDOW = 200
"""What one relay may have in flight, and so send twice, at a fault."""
RELAY = {"RELAY_WINDOW": str(WINDOW), "RELAY_BATCH_SIZE": "100"}
POLICY = {"lock_seconds": str(LOCK_SECONDS), "backoff_base": "0.5", "backoff_max": "2"}
"""Short locks, and twelve attempts within half a minute, so that a bad message ends while it is remembered."""
EXCHANGES = ("soak.plain", "soak.ordered")
QUEUE, KEY = "soak", "key"
HELD = "SELECT id::text FROM queue_message WHERE locked_by = %s AND lock_expires_at IS NOT NULL"
DUE = """
    SELECT count(*) FROM queue_message
    WHERE lock_expires_at IS NULL AND coalesce(available_at, '-infinity') <= clock_timestamp() - interval '1 s'
        AND created_at <= clock_timestamp() - interval '1 s' AND attempts = 0
"""
"""Messages that wait though nothing holds them back but the relays' work."""


@dataclass
class Stage:
    """Everything that a fault may break, and what it needs to see."""

    postgres: devservers.Postgres
    broker: devservers.RabbitMQ
    database: str
    """URL that leads straight to the database."""
    towards_postgres: Proxy
    towards_broker: Proxy
    fleet: Fleet
    chance: random.Random
    problems: list[str] = field(default_factory=list)
    """What must not be, in sentences."""

    @property
    def victim(self) -> Life:
        """The relay that may be killed."""
        return self.fleet.lives[VICTIM]

    async def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own, since any other may have been broken."""
        async with await psycopg.AsyncConnection.connect(self.database, autocommit=True, connect_timeout=5) as connection:
            cursor = await connection.execute(statement.encode(), values or None)
            return await cursor.fetchall() if cursor.description else []

    async def value(self, statement: str, *values: object) -> Any:
        """Return the only value of a statement."""
        [(value,)] = await self.sql(statement, *values)
        return value

    async def held_by(self, life: Life) -> list[str]:
        """Ids under the locks of one relay that runs no statement."""
        await until(lambda: self._is_idle(life), 60)
        return [id_ for (id_,) in await self.sql(HELD, life.id)]

    async def holds(self, life: Life) -> bool:
        """This relay has messages in flight."""
        return bool(await self.sql(HELD, life.id))

    async def wait(self, least: float, most: float) -> None:
        """Let a random time pass: how long a fault lasts."""
        await asyncio.sleep(self.chance.uniform(least, most))

    async def mend(self) -> None:
        """Let everything run again, after a fault that broke off."""
        for proxy in (self.towards_postgres, self.towards_broker):
            proxy.reset()
            proxy.heal()
        await asyncio.to_thread(self.postgres.start)
        await asyncio.to_thread(self.broker.start)
        await self.fleet.revive()

    async def _is_idle(self, life: Life) -> bool:
        mine = f"outbox-relay/{life.process.name} %"
        active = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND state <> 'idle'"
        return not await self.value(active, mine)


@asynccontextmanager
async def staged(
    postgres: devservers.Postgres, broker: devservers.RabbitMQ, folder: Path, chance: random.Random, say: Callable[[str], None]
) -> AsyncIterator[Stage]:
    """Set everything up on two servers that run, and take it down again."""
    databases = Databases(postgres.url)
    url = databases.url(databases.create())
    migrate(url, schema="public", seed=POLICY)
    with psycopg.connect(url, autocommit=True) as connection:
        _count_statements(connection, say)
    await _declare(broker)
    async with Proxy.before(url) as towards_postgres, Proxy.before(broker.url) as towards_broker:
        ways = {"database": towards_postgres.url(url), "broker": towards_broker.url(broker.url)}
        fleet = Fleet(folder, **ways, settings=RELAY)
        fleet.check_code()
        try:
            for name in (SURVIVOR, VICTIM):
                await fleet.start(name)
            yield Stage(postgres, broker, url, towards_postgres, towards_broker, fleet, chance)
        finally:
            await fleet.close()
            databases.drop_all()


def _count_statements(connection: psycopg.Connection[Any], say: Callable[[str], None]) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    except psycopg.Error as error:
        say(f"soak: the cost of a claim in buffers is left out, there is no pg_stat_statements ({error.diag.message_primary})")


async def _declare(broker: devservers.RabbitMQ) -> None:
    """Declare what lasts; a server that goes with all of it needs no clearing up."""
    topology = await Topology(broker.url, "soak").__aenter__()
    for exchange in EXCHANGES:
        await topology.declare(exchange, QUEUE, routing_key=KEY)
    topology._made.clear()
    await topology.__aexit__(None, None, None)
    await asyncio.to_thread(broker.persist_topology)
