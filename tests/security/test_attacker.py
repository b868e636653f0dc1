"""A login with the role of a producer alone does what harm it can, next to a producer that sends and a request that waits."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.support.attacker import Attacker
from tests.support.broker import Declared
from tests.support.logins import login
from tests.support.queue import Queue
from tests.support.relays import Relays

SECONDS = float(os.environ.get("ATTACK_SECONDS", "15"))
"""An hour is 3600."""
ATTACKERS = 3
WITHIN = 10.0
"""Seconds within which a message of the victim is delivered."""
INSERT = "INSERT INTO queue_message (exchange, routing_key, content) VALUES (%s, %s, jsonb_build_object('victim', %s::int))"
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


class Came:
    """Numbers of the victim's messages that its consumer has seen, whole and unchanged."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self._more = asyncio.Event()

    async def take(self, message: AbstractIncomingMessage) -> None:
        """Note a message; those of the attacker, who may publish here too, say so or say nothing."""
        content = json.loads(message.body)
        if "victim" in content:
            assert {"victim": content["victim"]} == content
            self.numbers[content["victim"]] += 1
            self._more.set()

    async def wait_for(self, number: int) -> None:
        """Wait until a message has come.

        Raises:
            TimeoutError: it is late.
        """
        async with asyncio.timeout(WITHIN):
            while number not in self.numbers:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def watching(url: str, queue: str) -> AsyncIterator[Came]:
    """Consume from a queue until the end of the block."""
    came = Came()
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        await (await channel.get_queue(queue, ensure=False)).consume(came.take, no_ack=True)
        yield came


@asynccontextmanager
async def attacked(url: str, victim: str, chance: random.Random) -> AsyncIterator[list[Attacker]]:
    """Several attackers at work until the end of the block."""
    attackers = [Attacker(url, victim, random.Random(chance.getrandbits(64))) for _ in range(ATTACKERS)]
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


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * SECONDS)
async def test_a_producer_delays_reads_forges_and_suppresses_nothing_of_another_one(
    relays: Relays, queue: Queue, inbox: Declared, amqp_url: str, victim_url: str, attacker_url: str, chance: random.Random
) -> None:
    """Each message of the victim is delivered in time, once and unchanged, and the request row stays as it was."""
    request = await a_request(queue)
    before = await queue.value(KEPT, request)
    await relays.start(database=queue.url, broker=amqp_url)
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(victim_url, autocommit=True) as victim,
        watching(amqp_url, inbox.queue) as came,
        attacked(attacker_url, inbox.exchange, chance) as foes,
    ):
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            number += 1
            await victim.execute(INSERT, (inbox.exchange, inbox.routing_key, number))
            await came.wait_for(number)

    assert [] == [said for foe in foes for said in foe.broke_in]
    assert await queue.value(SENT) > 100, "the attackers were not at work"
    assert dict.fromkeys(range(1, number + 1), 1) == came.numbers
    assert before == await queue.value(KEPT, request)
    assert [(None, None)] == await queue.sql("SELECT answer, error FROM page")
