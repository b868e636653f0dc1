"""The scene that every fault is played on: two servers, a producer with its ledger, relays in between, and what must add up in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from relay import devservers
from relay.demo.ledger import Report
from tests.support.broker.topology import Declared, Topology
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue, until
from tests.support.faults.runner import LEDGER, numbers
from tests.support.relays.ledgers import Producer
from tests.support.relays.processes import RelayProcess, Relays

LOCK_SECONDS = 3
"""A relay's locks, in the database of these tests; each test that kills one waits for them."""
RECOVERY, BY_ALL_MEANS = LOCK_SECONDS + 5.0, LOCK_SECONDS + 60.0
"""Seconds in which what a dead relay held is out again: the lock time and five, as promised for a machine that has time; and on any."""
ROW = "INSERT INTO queue_message (exchange, routing_key, body) SELECT %s, %s, convert_to(repeat('x', %s), 'UTF8') RETURNING id::text"
LAST_WORD = """
    SELECT extract(epoch FROM coalesce(max(lock_expires_at) - make_interval(secs => %s), clock_timestamp()))::float8
    FROM queue_message WHERE locked_by = %s AND lock_expires_at IS NOT NULL
"""
"""When a relay last took or renewed a lock that it still has."""


@dataclass
class Scene:
    """A database, a broker, a queue that takes everything, a producer with its ledger, and relays in between."""

    relays: Relays
    queue: Queue
    broker: devservers.RabbitMQ
    topology: Topology
    inbox: Declared
    producer: Producer
    chance: random.Random
    note: Callable[[str, object], None]
    recovery: float
    """Seconds in which what a dead relay held must be out again, here and now."""
    others: list[str] = field(default_factory=list)
    """Queues other than the inbox that messages go to."""

    async def start(self, name: str = "relay", *, broker: str = "", database: str = "", **settings: str) -> RelayProcess:
        """Start a relay between the two servers, or with another way to one of them."""
        return await self.relays.start(name, database=database or self.queue.url, broker=broker or self.broker.url, settings=settings)

    async def configure(self, **settings: object) -> None:
        """Set the database's policy."""
        for name, value in settings.items():
            await self.queue.sql("SELECT queue_message_config_set(%s, %s)", name, str(value))

    async def status(self) -> str:
        """What `relay status` prints."""
        return " ".join((await self.relays.command("status", database=self.queue.url)).split())

    async def start_beside(self, name: str, **settings: str) -> RelayProcess:
        """Start a relay that lives while the broker is frozen: it claims nothing before the thaw, and has no start-up behind it then."""
        relay = await self.relays.start(name, database=self.queue.url, broker=self.broker.url, settings=settings, ready=False)
        await relay.logged("started")
        return relay

    async def insert_body(self, size: int) -> str:
        """Insert a message for the inbox with a body of so many bytes; return its id."""
        return str(await self.queue.value(ROW, self.inbox.exchange, self.inbox.routing_key, size))

    async def held_by(self, relay: RelayProcess) -> list[str]:
        """Ids under one relay's locks."""
        held = "SELECT id::text FROM queue_message WHERE locked_by = %s AND lock_expires_at IS NOT NULL"
        return [id_ for (id_,) in await self.queue.sql(held, relay.id)]

    async def holds(self, relay: RelayProcess, count: int = 1) -> bool:
        """This relay has at least so many messages in flight."""
        return len(await self.held_by(relay)) >= count

    async def waits_for_confirms(self, relay: RelayProcess) -> bool:
        """This relay has written messages, and said that an exchange confirms nothing."""
        return bool(await self.queue.value("SELECT state->'silent' <> '{}' FROM queue_message_relay WHERE id = %s", relay.id))

    async def is_gone(self, relay: RelayProcess) -> bool:
        """The database has noticed that this relay's process is gone, so none of its statements still runs."""
        mine = f"outbox-relay/{relay.name} %"
        return not await self.queue.value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s", mine)

    async def kill(self, relay: RelayProcess) -> None:
        """Kill a relay, and note what was in flight."""
        await relay.kill()
        await until(lambda: self.is_gone(relay))
        await self.note_left_by(relay)

    async def note_left_by(self, relay: RelayProcess) -> list[str]:
        """Note as a fault what a relay that is gone has left locked, from its last word on, by the database's clock; return the ids."""
        held = await self.held_by(relay)
        self.producer.fault(held, await self.queue.value(LAST_WORD, LOCK_SECONDS, relay.id))
        return held

    async def report(self) -> Report:
        """Join producer, consumer and archive."""
        report = await self.producer.report(self.queue, self.topology, self.inbox.queue, *self.others)
        self.note(LEDGER, numbers(report))
        return report

    async def check(self, *relays: RelayProcess, timed: bool = True) -> Report:
        """Wait for the end, stop the relays in order, and expect that everything adds up, and where it is timed, recovers in time.

        Before the end relays at work leave nothing alone that can be claimed.
        """
        if relays:
            await asyncio.to_thread(assert_nothing_is_lost, self.queue.url, watched=True)
        await self.queue.settled()
        assert [0] * len(relays) == await asyncio.gather(*(relay.stop() for relay in relays))
        report = await self.report()
        assert [] == report.mismatches(recovery_limit=self.recovery if timed else None), report
        assert report.committed == report.delivered > 0
        return report

    async def check_after_restart(self, *relays: RelayProcess) -> Report:
        """As `check`, through a new connection to the broker, since the old one went with it."""
        async with Topology(self.broker.url, "again") as topology:
            self.topology = topology
            return await self.check(*relays, timed=False)

    async def check_with_new_eyes(self, *relays: RelayProcess) -> Report:
        """As `check`, through a new connection to the database, since the old one went with it."""
        async with await psycopg.AsyncConnection.connect(self.queue.url, autocommit=True) as connection:
            self.queue = Queue(self.queue.url, connection)
            return await self.check(*relays, timed=False)
