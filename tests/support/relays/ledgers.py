"""A producer that keeps a ledger, and the join of that ledger with what came and with the database."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from relay.demo import ledger
from relay.demo.journal import Journal
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue

KEYS = 20
"""Ordering keys among which messages are spread."""
_INSERT = """
    INSERT INTO queue_message (id, exchange, routing_key, ordering_key, options, body)
    VALUES (%s, %s, %s, %s, %s, nullif(convert_to(repeat('x', %s), 'UTF8'), ''))
"""
Message = dict[str, Any]
"""A message as the producer notes it: id, expect, key and place if it has an ordering key, and what `Producer.shape` adds."""


class Producer:
    """Inserts messages in business transactions, some of them rolled back, and notes each before and after its end.

    Args:
        url: the database.
        exchange: of every message.
        folder: where the ledger is kept.
        chance: decides sizes, keys, pauses and rollbacks.

    """

    def __init__(self, url: str, exchange: str, folder: Path, chance: random.Random) -> None:
        self._url = url
        self._exchange = exchange
        self._folder = folder
        self._chance = chance
        self._journal = Journal(folder / ledger.PRODUCER)
        self._faults = Journal(folder / ledger.FAULTS)
        self._consumer = Journal(folder / ledger.CONSUMER)
        self._places = dict.fromkeys((f"key-{number}" for number in range(KEYS)), 0)
        self._transactions = 0
        self._stopping = False
        self.committed = 0
        self.shape: Callable[[Message], Message] = lambda message: message
        """Adds what else a message has: exchange, routing_key, options, size of the body; also what the archive is to say, as expect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for journal in (self._journal, self._faults, self._consumer):
            journal.__exit__(kind, error, traceback)

    async def run(self, *, longest_pause: float = 0.01) -> None:
        """Insert until `stop`; a lost database is waited for."""
        while not self._stopping:
            with suppress(psycopg.OperationalError):
                async with await psycopg.AsyncConnection.connect(self._url, connect_timeout=5) as connection:
                    while not self._stopping:
                        await self.transact(connection, self._chance.randint(1, 10))
                        await asyncio.sleep(self._chance.uniform(0, longest_pause))  # random pauses are the load
            await asyncio.sleep(0.05)  # an application that tries again, no test waits for it

    async def insert(self, count: int, *, ordered: bool = True) -> None:
        """Insert a number of messages in transactions of a hundred."""
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            for _ in range(count // 100):
                await self.transact(connection, 100, ordered=ordered, roll_back=False)

    async def transact(self, connection: psycopg.AsyncConnection[Any], count: int, *, ordered: bool = True, roll_back: bool = True) -> None:
        """Run one transaction; without a note of its end, its outcome is unknown."""
        self._transactions += 1
        name, places = f"t{self._transactions}", dict(self._places)
        messages = [self._message(ordered=ordered) for _ in range(count)]
        self._journal.note(transaction=name, phase="before", messages=messages)
        async with connection.cursor() as cursor:
            await cursor.executemany(_INSERT, [self._row(each) for each in messages])
        if roll_back and self._chance.random() < 0.05:
            await connection.rollback()
            self._places = places
            self._journal.note(transaction=name, phase="rolled_back")
            return
        await connection.commit()
        self.committed += count
        self._journal.note(transaction=name, phase="committed")

    def vouch(self, ids: Sequence[str], expect: str = "success", *, not_before: float | None = None) -> None:
        """Note messages that somebody else has committed."""
        self._transactions += 1
        messages = [{"id": id_, "expect": expect, "not_before": not_before} for id_ in ids]
        self._journal.note(transaction=f"t{self._transactions}", phase="before", messages=messages)
        self._journal.note(transaction=f"t{self._transactions}", phase="committed")

    def stop(self) -> None:
        """Let `run` end after its transaction."""
        self._stopping = True

    def fault(self, in_flight: Sequence[str] | int, at: float | None = None) -> None:
        """Note a fault, now or at a time since 1970: the ids that were in flight, or the most that can have been."""
        self._faults.note(at=time.time() if at is None else at, in_flight=in_flight)

    async def collect(self, topology: Topology, name: str) -> int:
        """Take what is there now off the queue `name`; return how many those were."""
        waiting = await topology.waiting(name)
        came = await topology.drain(name, waiting) if waiting else []
        for message in came:
            self._consumer.note(id=message.headers["x-relay-id"], at=time.time())
        return len(came)

    async def report(self, queue: Queue, topology: Topology, *names: str) -> ledger.Report:
        """Take everything off these queues, and join."""
        for name in names:
            await self.collect(topology, name)
        with Journal(self._folder / ledger.ARCHIVE) as journal:
            columns = "id::text, result, error_code, extract(epoch FROM archived_at)::float8"
            for row in await queue.sql(f"SELECT {columns} FROM queue_message_archive"):
                journal.note(**dict(zip(("id", "result", "error_code", "archived_at"), row, strict=True)))
        with Journal(self._folder / ledger.QUEUE) as journal:
            for (id_,) in await queue.sql("SELECT id::text FROM queue_message"):
                journal.note(id=id_)
        return ledger.check(self._folder)

    def _row(self, message: Message) -> tuple[object, ...]:
        exchange, routing_key = message.get("exchange", self._exchange), message.get("routing_key", "key")
        return message["id"], exchange, routing_key, message.get("key"), json.dumps(message.get("options", {})), message.get("size", 0)

    def _message(self, *, ordered: bool) -> Message:
        message: Message = {"id": str(uuid.UUID(int=self._chance.getrandbits(128), version=4)), "expect": "success"}
        if ordered and self._chance.random() < 0.3:
            key = self._chance.choice(list(self._places))
            self._places[key] += 1
            message |= {"key": key, "place": self._places[key]}
        return self.shape(message)
