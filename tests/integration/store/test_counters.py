"""What a drained message costs, by counters; each limit is next to its measurement.

Measured on 2 cores with PostgreSQL 15 and RabbitMQ 3.10 alongside, with messages of 300 bytes and default settings.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields

import psycopg
import pytest

from relay.message import SUCCESS
from relay.ports import SettleRow
from tests.support.broker.topology import Topology
from tests.support.database.queue import MakeStore, Queue, until
from tests.support.network.statement_proxy import Tap
from tests.support.relays.processes import Relays, cpu_seconds, peak_memory
from tests.support.relays.yardstick import Yardstick
from tests.support.servers.shared import Say

MESSAGES = 20_000
BATCH = 1_000
IDLE_STATEMENTS_PER_SECOND = 4.0
"""Measured: 2.9 to 3.3. One look a second; every two seconds policy, heartbeat, lanes and the locks of silent relays; every ten a proof.
In addition, some twenty statements run once a minute, a third of one a second."""
RESTED = 3
"""Heartbeats after which a relay with nothing to do has come to rest."""
IDLE_HEARTBEATS = 5
"""The number of heartbeats to count over, two seconds apart: the maintenance tasks of the minute come ten times as late."""
SIZES = (0, 20, 60, 100, 250, 300, 700, 1950)
LONGEST_NAME = "relay-" + "x" * 34
INSERT = (
    "INSERT INTO queue_message (exchange, routing_key, content) "
    f"SELECT %s, %s, jsonb_build_object('n', n, 'pad', repeat('x', 250)) FROM generate_series(1, {MESSAGES}) AS n"
)


@dataclass(frozen=True)
class Costs:
    """What draining a backlog costs, of each kind that has a limit."""

    statements: float
    """Statements for each batch, in addition to those of an idle relay. Measured: 3.5 to 4.0, on a busy machine 4.3 to 6.1. Two claim and
    one settles. Some look for keys and for what scans find, as the first claims of a backlog are smaller than a batch. A portion that is
    confirmed late settles apart."""
    wal: float
    """Bytes of WAL for each message. Measured: 1,045 to 1,125 without full-page images, including the first pages of a new table and the
    relay's own row. Once those are there, it is 864: 170 of the claim, 150 of the archive's indexes, the rest of the move."""
    cold: float
    """Share of the claims that are not HOT. Measured: 0, as each page keeps room for a second version of its rows."""
    cpu: float
    """Processor time of the relay for each message, in round trips of a small value through JSON. Measured: 2.5 to 2.8, on a busy
    machine 2.7 to 3.7; a task or a future for each message would cost 30. `tests/unit/engine/test_calls.py` holds it by counting."""
    memory: int
    """Bytes of the relay's peak. Measured: 73 to 82 MB, of which the interpreter and the libraries are 60."""

    def above(self, limits: Costs) -> list[str]:
        """Names of the kinds that cost more than they may."""
        return [field.name for field in fields(self) if getattr(self, field.name) > getattr(limits, field.name)]


LIMITS = Costs(statements=6.5, wal=1200, cold=0.01, cpu=5, memory=120 << 20)


class Meter:
    """Counts in one database from another one of the same server, so that looking does not count."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[int]], database: str) -> None:
        self._connection = connection
        self._database = database

    async def wal(self) -> int:
        """Bytes of the server's WAL so far."""
        return await self._one("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")

    async def relays_have_left(self) -> bool:
        """Whether all connections of relays are gone, so that their work is counted."""
        mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'outbox-relay/%%'"
        return await self._one(mine, self._database) == 0

    async def _one(self, statement: str, *values: str) -> int:
        cursor = await self._connection.execute(statement.encode(), values or None)
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
async def meter(queue: Queue) -> AsyncIterator[Meter]:
    """Looks at this test's database from outside."""
    async with await psycopg.AsyncConnection.connect(queue.url, dbname="postgres", autocommit=True) as connection:
        yield Meter(connection, await queue.value("SELECT current_database()"))


async def drain(relays: Relays, queue: Queue, meter: Meter, topology: Topology, broker: str) -> Costs:
    """Let a relay send a backlog and stop; return what that cost."""
    inbox, yardstick = await topology.declare(), Yardstick()

    async def has_arrived() -> bool:
        yardstick.measure()
        return await topology.has(inbox.queue, MESSAGES)

    async with Tap.before(queue.url) as tap:
        relay = await relays.start(LONGEST_NAME, database=tap.url(queue.url), broker=broker)
        await relay.logged("listen_up")
        async with await psycopg.AsyncConnection.connect(queue.url) as writer:
            await writer.execute(INSERT.encode(), [inbox.exchange, inbox.routing_key])
            cpu, wal, started, began = cpu_seconds(relay.pid), await meter.wal(), len(tap.statements), time.monotonic()
        await until(has_arrived, 60)
        await queue.settled()
        statements = len(tap.statements) - started - IDLE_STATEMENTS_PER_SECOND * (time.monotonic() - began)
        cpu, memory = cpu_seconds(relay.pid) - cpu, peak_memory(relay.pid)
        assert 0 == await relay.stop()
    await until(meter.relays_have_left)
    wal = await meter.wal() - wal
    claims, hot = await versions(queue)
    assert claims >= MESSAGES
    return Costs(statements * BATCH / MESSAGES, wal / MESSAGES, 1 - hot / claims, cpu / MESSAGES / yardstick.seconds, memory)


async def versions(queue: Queue) -> tuple[int, int]:
    """Row versions of the queue that updates made so far, and how many of them were HOT."""
    [(made, hot)] = await queue.sql("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'queue_message'")
    return made, hot


@pytest.mark.ids("D2")
async def test_a_drained_backlog_costs_what_it_may(
    relays: Relays, queue: Queue, meter: Meter, topology: Topology, amqp_url: str, say: Say
) -> None:
    """Processor time and memory of the relay, statements, WAL and row versions of the database."""
    costs = await drain(relays, queue, meter, topology, amqp_url)
    say(str(costs))
    assert [] == costs.above(LIMITS)


@pytest.mark.ids("D2")
async def test_claims_stay_hot_whatever_the_size_of_messages(queue: Queue, make_store: MakeStore) -> None:
    """Every row of a page finds room for its second version, also at sizes that fill a page to the last byte."""
    store = make_store("r")
    await store.register()
    for size in SIZES:
        pad = f"jsonb_build_object('pad', repeat('x', {size}))"
        await queue.sql(f"INSERT INTO queue_message (exchange, content) SELECT 'orders', {pad} FROM generate_series(1, 1000)")
        for _ in range(2):
            batch = await store.batch(limit=BATCH // 2)
            await store.archive(batch, [SettleRow(claim, SUCCESS, 1, 2) for claim in batch.claims], again=False)
    await store.aclose()

    async def counted() -> bool:
        claims, hot = await versions(queue)
        return bool(claims == 1000 * len(SIZES) and hot >= (1 - LIMITS.cold) * claims)

    await until(counted)


@pytest.mark.ids("D2")
async def test_an_idle_relay_asks_little(relays: Relays, queue: Queue, amqp_url: str, say: Say) -> None:
    """Statements a second of a relay that has nothing to do, each one heard on its way, from a heartbeat to a later one."""
    async with Tap.before(queue.url) as tap:

        async def beats(count: int) -> bool:
            return len(tap.of("heartbeat")) >= count

        relay = await relays.start(database=tap.url(queue.url), broker=amqp_url)
        await until(lambda: beats(RESTED + IDLE_HEARTBEATS), 60)
        first, *_, last = [heard.at for heard in tap.of("heartbeat")[RESTED - 1 : RESTED + IDLE_HEARTBEATS]]
        counted = [heard for heard in tap.statements if first < heard.at <= last]
        assert 0 == await relay.stop()
    say(f"{len(counted) / (last - first):.1f} statements a second while idle")
    assert IDLE_HEARTBEATS < len(counted) <= IDLE_STATEMENTS_PER_SECOND * (last - first), counted
