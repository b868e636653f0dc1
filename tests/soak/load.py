"""The load of a soak: producers in business transactions at a steady rate, and a consumer that notes what comes."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aio_pika
import psycopg
from aio_pika.abc import AbstractIncomingMessage
from aiormq.exceptions import AMQPError

from tests.soak.shards import DIGITS, Shards
from tests.soak.stage import EXCHANGES, KEY, QUEUE

PRODUCERS = 4
PREFETCH = 200
KEYS_OF_A_SHARD = 5
LARGEST = 10
"""Messages in a transaction."""
MAY_LAG = 1.0
"""Seconds that a producer makes up for after an outage; the rest is left out."""
KINDS: Mapping[str, float] = {
    "ordered": 0.30,
    "headers": 0.15,
    "delayed": 0.05,
    "unroutable": 0.004,
    "no_exchange": 0.003,
    "expired": 0.003,
}
"""Share of each kind; the others are plain. One in a hundred is bad."""
PLAIN, ORDERED = EXCHANGES
_INSERT = """
    INSERT INTO queue_message (id, exchange, routing_key, ordering_key, content, options, available_at, expires_at)
    VALUES (%(id)s, %(exchange)s, %(routing_key)s, %(key)s, %(content)s, %(options)s, to_timestamp(%(not_before)s), to_timestamp(%(until)s))
"""
_ROW: Mapping[str, Any] = {"exchange": PLAIN, "routing_key": KEY, "key": None, "options": "{}", "not_before": None, "until": None}
_NOTED = ("id", "expect", "key", "place", "not_before")


class Producer:
    """One of the producers; it has shards, and so keys, of its own.

    Args:
        number: which one.
        url: the database, past all proxies.
        journal: notes each transaction before and after its end.
        chance: decides sizes, kinds and rollbacks.

    """

    def __init__(self, number: int, *, url: str, journal: Shards, chance: random.Random) -> None:
        self._url, self._journal, self._chance = url, journal, chance
        self._number = number
        self._shards = DIGITS[number::PRODUCERS]
        self._places: dict[str, int] = {}
        self._transactions = 0
        self.committed = 0

    async def run(self, rate: float, stop: asyncio.Event) -> None:
        """Insert so many messages a second until `stop`; a lost database is waited for."""
        while not stop.is_set():
            with suppress(psycopg.OperationalError, psycopg.InterfaceError, TimeoutError):
                async with await psycopg.AsyncConnection.connect(self._url, connect_timeout=5) as connection:
                    await self._produce(connection, rate, stop)
            await asyncio.sleep(0.1)  # an application that tries again

    async def _produce(self, connection: psycopg.AsyncConnection[Any], rate: float, stop: asyncio.Event) -> None:
        due = time.monotonic()
        while not stop.is_set():
            count = self._chance.randint(1, LARGEST)
            await self._transact(connection, count)
            due = max(due + count / rate, time.monotonic() - MAY_LAG)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _transact(self, connection: psycopg.AsyncConnection[Any], count: int) -> None:
        """Run one transaction; without a note of its end, its outcome is unknown."""
        self._transactions += 1
        shard, places = self._chance.choice(self._shards), dict(self._places)
        name = f"{self._number}-{self._transactions}"
        rows = [self._message(shard) for _ in range(count)]
        noted = [{field: row[field] for field in _NOTED if row.get(field) is not None} for row in rows]
        self._journal.note(shard, transaction=name, phase="before", messages=noted)
        async with connection.cursor() as cursor:
            await cursor.executemany(_INSERT, rows)
        if self._chance.random() < 0.05:
            await connection.rollback()
            self._places = places
            self._journal.note(shard, transaction=name, phase="rolled_back")
            return
        await connection.commit()
        self.committed += count
        self._journal.note(shard, transaction=name, phase="committed")

    def _message(self, shard: str) -> dict[str, Any]:
        id_ = shard + uuid.UUID(int=self._chance.getrandbits(128), version=4).hex[1:]
        content = json.dumps({"filled": "x" * self._chance.randint(10, 400)})
        row = {**_ROW, "id": str(uuid.UUID(id_)), "content": content, "expect": "success"}
        [kind] = self._chance.choices([*KINDS, "plain"], [*KINDS.values(), 1 - sum(KINDS.values())])
        return row | self._of_kind(kind, shard)

    def _of_kind(self, kind: str, shard: str) -> dict[str, Any]:
        # What is tried twelve times ends `failed`, or `lock_expired` where a relay dies over the last; so only that it is dead is expected.
        bad: dict[str, dict[str, Any]] = {
            "unroutable": {"routing_key": "leads.nowhere", "expect": None},
            "no_exchange": {"exchange": "soak.missing", "expect": None},
            "expired": {"until": time.time() - 60, "expect": "rejected"},
        }
        match kind:
            case "ordered":
                key = f"{shard}-{self._chance.randrange(KEYS_OF_A_SHARD)}"
                self._places[key] = self._places.get(key, 0) + 1
                return {"exchange": ORDERED, "key": key, "place": self._places[key]}
            case "headers":
                return {"options": json.dumps({"headers": {"kind": kind, "shop": self._chance.randrange(9)}, "type": "soak"})}
            case "delayed":
                return {"not_before": time.time() + self._chance.uniform(1, 15)}
            case _:
                return bad.get(kind, {})


class Consumer:
    """Notes each delivery of the queue, and then acknowledges it.

    What it noted and the broker did not hear of before their connection broke comes again, marked as redelivered; that is no duplicate.

    Args:
        url: the broker, past all proxies.
        journal: notes each delivery.

    """

    def __init__(self, url: str, journal: Shards) -> None:
        self._url, self._journal = url, journal
        self._last: deque[str] = deque(maxlen=PREFETCH)
        self._unheard: set[str] = set()
        """Noted on connections that broke, and perhaps not acknowledged."""
        self.delivered = 0
        self.again = 0
        """Deliveries of what was noted already."""

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`; a lost broker is waited for."""
        while not stop.is_set():
            with suppress(AMQPError, OSError, TimeoutError, RuntimeError):
                await self._consume(stop)
            self._unheard = {*self._last}
            await asyncio.sleep(0.2)  # an application that tries again
        gc.collect()  # a connection that failed wants the loop to die in

    async def _consume(self, stop: asyncio.Event) -> None:
        over = asyncio.Event()
        connection = await aio_pika.connect(f"{self._url}?heartbeat=5", timeout=10)
        async with connection:
            connection.close_callbacks.add(lambda *_: over.set())
            channel = await connection.channel()
            channel.close_callbacks.add(lambda *_: over.set())
            await channel.set_qos(PREFETCH)
            queue = await channel.get_queue(QUEUE, ensure=False)
            await queue.consume(self._take)
            waits = [asyncio.ensure_future(event.wait()) for event in (over, stop)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        id_ = str(message.headers["x-relay-id"])
        if message.redelivered and id_ in self._unheard:
            self._unheard.discard(id_)
            self.again += 1
        else:
            self._journal.note(id_, id=id_, at=time.time())
            self._last.append(id_)
            self.delivered += 1
        with suppress(AMQPError, RuntimeError, OSError):
            await message.ack()
