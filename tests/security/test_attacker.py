"""A login with the role of a producer alone does what harm it can, next to a producer that sends and a request that waits."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractIncomingMessage
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.security.attacker import Attacker
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login
from tests.support.servers.shared import Say

SECONDS = float(os.environ.get("ATTACK_SECONDS", "11"))
"""An hour is 3600."""
ATTACKERS = 3
WITHIN = 10.0
"""Seconds within which a message of the victim is delivered."""
BURST = 3
"""Messages that a victim sends before it waits for them."""
DELAY = 1.0
"""Seconds until a delayed message is due, and at most until one is collected or folded; a victim waits `WITHIN` more."""
GUESSED = [UUID(int=number) for number in range(1, 500)]
"""Ids of the victim's that somebody may know."""
VICTIMS: Mapping[str, dict[str, object]] = {
    "plain": {},
    "ordered": {"ordering_key": "mine"},
    "delayed": {"available_at": timedelta(seconds=DELAY)},
    "deduplicated": {"dedup_key": "mine"},
    "coalesced": {"coalesce_key": "mine"},
    "bundled": {"bundle_key": "mine"},
}
"""What the messages of each victim have, by the end of its exchange's name."""
SENT = """SELECT count(*) FROM (SELECT content FROM queue_message UNION ALL SELECT content FROM queue_message_archive) AS m
    WHERE content ->> 'from' = 'attacker'"""
KEPT = "SELECT to_jsonb(m) - '{lock_expires_at,lock_token,locked_by}'::text[] FROM queue_message m WHERE id = %s"


@pytest.fixture
def victim_url(database_url: str) -> Iterator[str]:
    """Login of the producer who is attacked."""
    with login(database_url, "queue_message_producer") as url:
        yield url


@pytest.fixture
def attacker_url(database_url: str) -> Iterator[str]:
    """Login of the one who attacks."""
    with login(database_url, "queue_message_producer") as url:
        yield url


class Victim:
    """A producer of one kind of messages to an exchange of its own, and the consumer of that.

    Args:
        kind: of `VICTIMS`.
        declared: its exchange, and the queue behind it.
    """

    def __init__(self, kind: str, declared: Declared) -> None:
        self.kind = kind
        self.declared = declared
        self.came: list[int] = []
        """Numbers of the messages that were delivered whole and unchanged, in that order."""
        self.owed: list[int] = []
        """Numbers of those that had to be."""
        self._seen: set[int] = set()
        self._more = asyncio.Event()
        self._sent = 0

    async def take(self, message: AbstractIncomingMessage) -> None:
        """Note a message, or the parts of a bundle; those of the attacker, who may publish here too, name no victim."""
        content = json.loads(message.body) if b"victim" in message.body else []
        for part in content if isinstance(content, list) else [content]:
            if "victim" in part:
                assert {"victim": part["victim"]} == part
                self.came.append(part["victim"])
                self._seen.add(part["victim"])
                self._more.set()

    async def send_until(self, end: float, connection: psycopg.AsyncConnection[Any]) -> None:
        """Send some messages and wait until they have come, again and again until a monotonic time.

        Raises:
            AssertionError: one is late.
        """
        while time.monotonic() < end:
            numbers = [await self._send(connection) for _ in range(BURST)]
            owed = numbers[-1:] if self.kind == "coalesced" else numbers
            self.owed += owed
            try:
                async with asyncio.timeout(WITHIN + DELAY):
                    while not self._seen.issuperset(owed):
                        self._more.clear()
                        await self._more.wait()
            except TimeoutError:
                pytest.fail(f"{self.kind}: {[*{*owed} - self._seen]} of {numbers} did not come within {WITHIN + DELAY:g} s; {load()}")

    async def _send(self, connection: psycopg.AsyncConnection[Any]) -> int:
        self._sent += 1
        content = Jsonb({"victim": self._sent})
        columns = {"exchange": self.declared.exchange, "routing_key": self.declared.routing_key, "content": content, **VICTIMS[self.kind]}
        if self.kind == "delayed":
            columns["available_at"] = datetime.now(UTC) + timedelta(seconds=DELAY)
        elif self.kind == "deduplicated":
            columns["dedup_key"] = f"mine {self._sent}"  # the attackers use numbers, and keys of one outbox are shared
        elif self.kind == "coalesced" and self._sent <= len(GUESSED):
            columns["id"] = GUESSED[self._sent - 1]
        table = "queue_message_keyed" if {*columns} & {"dedup_key", "coalesce_key", "bundle_key"} else "queue_message"
        names, values = [sql.SQL(", ").join(map(made, columns)) for made in (sql.Identifier, sql.Placeholder)]
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), names, values)
        try:
            await connection.execute(statement, columns)
        except psycopg.errors.UniqueViolation:
            # As SECURITY.md says of ids that can be guessed: the attacker's message waits with this one.
            if "id" not in columns:
                raise
            await connection.execute(statement, {**columns, "id": uuid4()})
        return self._sent


def load() -> str:
    """How busy the machine is: on one that does much else, lateness says little."""
    return f"{os.getloadavg()[0]:.1f} processes wanted its {os.cpu_count()} cores"


@asynccontextmanager
async def consumed(url: str, victims: Sequence[Victim]) -> AsyncIterator[None]:
    """Consume what comes to the victims' queues until the end of the block."""
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        for victim in victims:
            await (await channel.get_queue(victim.declared.queue, ensure=False)).consume(victim.take, no_ack=True)
        yield


@asynccontextmanager
async def attacked(url: str, exchanges: Sequence[str], dead: UUID, chance: random.Random) -> AsyncIterator[list[Attacker]]:
    """Several attackers at work until the end of the block."""
    attackers = [Attacker(url, exchanges, GUESSED, dead, random.Random(chance.getrandbits(64))) for _ in range(ATTACKERS)]
    tasks = [asyncio.create_task(attacker.run()) for attacker in attackers]
    try:
        yield attackers
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {asyncio.CancelledError} == {type(one) for one in ended}, ended


async def a_request(queue: Queue) -> str:
    """A request row that waits for its answer; return the id of its message."""
    await queue.sql("CREATE TABLE page (id int PRIMARY KEY, url text, answer text, error text)")
    # Requests belong to an inbox. This queue is one only for as long as that is asked, since the relay publishes from it.
    await queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    await queue.sql("SELECT queue_message_request('page', '{answer}', 'error')")
    await queue.sql("SELECT queue_message_config_set('direction', 'outbox')")
    await queue.sql("SELECT queue_message_pause('public.page')")
    await queue.sql("INSERT INTO page (id, url) VALUES (1, 'u')")
    return str(await queue.value("SELECT id FROM queue_message"))


async def a_dead_message(queue: Queue) -> UUID:
    """A message of the victim's that died; return its id."""
    await queue.sql("INSERT INTO queue_message (exchange) VALUES ('victim')")
    [(id_,)] = await queue.sql("SELECT id FROM queue_message WHERE exchange = 'victim'")
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'unroutable', NULL, 'relay-1')", id_)
    return UUID(str(id_))


async def play(url: str, victim: Victim) -> None:
    """Let a victim send for as long as the attack goes."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await victim.send_until(time.monotonic() + SECONDS, connection)


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * SECONDS)
async def test_a_producer_delays_reads_forges_and_suppresses_nothing_of_another_one(
    relays: Relays, queue: Queue, topology: Topology, unique: str, amqp_url: str, victim_url: str, attacker_url: str, chance: random.Random,
    say: Say,
) -> None:  # fmt: skip
    """Each message of the victims is delivered in time, once, in order and unchanged, and the request row stays as it was."""
    dead, request = await a_dead_message(queue), await a_request(queue)
    before = await queue.value(KEPT, request)
    victims = [Victim(kind, await topology.declare(f"{unique}.{kind}", f"{unique}.{kind}")) for kind in VICTIMS]
    await relays.start(database=queue.url, broker=amqp_url)
    exchanges = [victim.declared.exchange for victim in victims]
    async with consumed(amqp_url, victims), attacked(attacker_url, exchanges, dead, chance) as foes, asyncio.TaskGroup() as group:
        for victim in victims:
            group.create_task(play(victim_url, victim))

    say(f"delivered { ({each.kind: len(each.came) for each in victims}) }, done {sum((Counter(foe.did) for foe in foes), Counter[str]())}")
    assert [] == [said for foe in foes for said in foe.broke_in]
    assert await queue.value(SENT) > 100, "the attackers were not at work"
    for victim in victims:
        owed = dict.fromkeys(victim.owed)
        came = [number for number in victim.came if number in owed]
        assert victim.owed == (came if victim.kind == "ordered" else sorted(came)), victim.kind
        assert len({*victim.came}) == len(victim.came), victim.kind
    assert before == await queue.value(KEPT, request)
    assert [(None, None)] == await queue.sql("SELECT answer, error FROM page")
    assert (dead,) in await queue.sql("SELECT id FROM queue_message_find(exchange => 'victim', result => 'failed')")
