"""What goes into queues that move between clusters, and what comes out of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import psycopg

from tests.support.broker.topology import Declared, Topology
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue, until

KEYS = ("a", "b", "c")


@asynccontextmanager
async def queue_at(url: str) -> AsyncIterator[Queue]:
    """The queue of a database; in the end it holds nothing that no relay would find, nor anything that those at work leave alone."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield Queue(url, connection)
    await asyncio.to_thread(assert_nothing_is_lost, url, watched=True)


class Sent:
    """What goes in, by ordering key and without one, and what comes out of the broker."""

    def __init__(self, topology: Topology, inbox: Declared) -> None:
        self.topology, self.inbox = topology, inbox
        self.to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
        self.keys: dict[str, list[str]] = {key: [] for key in KEYS}
        self.unkeyed: list[str] = []

    @property
    def ids(self) -> list[str]:
        """All of them."""
        return [*self.unkeyed, *(id_ for ids in self.keys.values() for id_ in ids)]

    async def insert(self, queue: Queue, rounds: int, *, unkeyed: bool = False) -> None:
        """Messages of all keys in turn, each in a transaction of its own; with `unkeyed` one without a key in each round as well."""
        for _ in range(rounds):
            for key in KEYS:
                self.keys[key] += await queue.insert(**self.to, ordering_key=key)
            if unkeyed:
                self.unkeyed += await queue.insert(**self.to)

    async def all_came_in_order(self) -> None:
        """Each key's messages came in the order in which they were inserted, each once."""
        came = await self.come()
        assert sorted(self.ids) == sorted(came)
        self.in_order(came)

    async def come(self) -> list[str]:
        """Ids in the order in which they came: at least as many as were inserted here, and whatever else is there by then."""
        waiting = max(len(self.ids), await self.topology.waiting(self.inbox.queue))
        return [str(message.headers["x-relay-id"]) for message in await self.topology.drain(self.inbox.queue, waiting)]

    def in_order(self, came: Iterable[str]) -> None:
        """All of these came, and each key's messages in their order, by when each came first."""
        first = list(dict.fromkeys(came))
        assert not {*self.ids} - {*first}
        for ids in self.keys.values():
            assert ids == [id_ for id_ in first if id_ in {*ids}]


@asynccontextmanager
async def inserting(queue: Queue, sent: Sent) -> AsyncIterator[None]:
    """Messages of all keys and without one, from some time before the block to some time after it."""
    ends = asyncio.Event()

    async def insert() -> None:
        while not ends.is_set():
            await sent.insert(queue, 1, unkeyed=True)
            await asyncio.sleep(0.02)  # the pace of the load

    async def more(than: int) -> None:
        await until(lambda: len(sent.unkeyed) > than)

    task = asyncio.create_task(insert())
    await more(10)
    yield
    await more(len(sent.unkeyed) + 10)
    ends.set()
    await task
