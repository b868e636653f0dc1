"""Who puts many entries of the catalogue of bad and odd messages into one queue, and knows what must become of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from tests.support.broker.raw_amqp import RawClient
from tests.support.database.queue import Queue
from tests.support.faults.scene import Scene
from tests.support.poison.catalogue import Poison
from tests.support.poison.poisoning import BARRED, Plain, Sent, expect_archived, expect_refused, expect_seen, insert, prepare, read_archive


class Poisoner:
    """Inserts entries, each to exchanges of its own, which are made when it comes for the first time."""

    def __init__(self, queue: Queue, client: RawClient, prefix: str) -> None:
        self._queue, self._client, self._prefix = queue, client, prefix
        self._plain: dict[str, Plain] = {}
        self.sent: list[Sent] = []

    @classmethod
    @asynccontextmanager
    async def at_work(cls, scene: Scene, prefix: str) -> AsyncIterator[Self]:
        """One that can do as it likes with the broker; at the end of the block it cancels messages that would wait for ever."""
        async with RawClient(scene.broker.url) as client:
            poisoner = cls(scene.queue, client, prefix)
            yield poisoner
            await poisoner.cancel_far()

    async def prepare(self, entry: Poison) -> None:
        """Make what an entry needs."""
        if entry.name not in self._plain:
            word = BARRED if "no_permission" in entry.needs else "e"
            self._plain[entry.name] = await prepare(self._queue, self._client, entry, f"{self._prefix}.{word}{len(self._plain)}")

    async def put(self, entry: Poison) -> Sent:
        """Insert an entry that was prepared."""
        self.sent.append(await insert(self._queue, entry, self._plain[entry.name]))
        return self.sent[-1]

    async def cancel_far(self) -> None:
        """Do what the check of the queue asks an operator to do with messages whose time does not come."""
        for id_ in [id_ for one in self.sent if "year_9999" in one.entry.needs for id_ in one.ids]:
            assert await self._queue.value("SELECT queue_message_cancel(%s)", id_)

    async def expect_all(self) -> None:
        """Everything has ended as the catalogue says, and a consumer has seen it once."""
        arrived = [id_ for one in self.sent if one.arrives for id_ in one.ids]
        deliveries = await self._client.deliveries(len(arrived))
        assert dict.fromkeys(arrived, 1) == Counter(each.relay_id for each in deliveries)
        expect_seen(self.sent, {each.relay_id: each for each in deliveries})
        expect_refused(self.sent)
        expect_archived(self.sent, await read_archive(self._queue))
