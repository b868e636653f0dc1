"""A source of deliveries that are given: a receiver takes them as from a queue, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from relay import events
from relay.inbox.delivery import Delivery, delivery
from relay.inbox.ports import Taken
from relay.inbox.receiver import Receiver
from relay.postgres.inbox import Inbox

LIMIT = 1 << 20
"""Bytes of a payload."""


class GivenSource:
    """See `relay.inbox.ports.DeliverySource`; what is acknowledged is noted, and after the last delivery `ended` is set."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._left = [Taken(each, "channel", tag) for tag, each in enumerate(deliveries)]
        self._waiting = {each.tag for each in self._left}
        self.acknowledged: list[Delivery] = []
        self.ended = asyncio.Event()

    async def take(self, most: int, most_bytes: int) -> list[Taken]:
        """The next ones."""
        assert most_bytes
        taken, self._left = self._left[:most], self._left[most:]
        if not taken:
            await asyncio.get_running_loop().create_future()
        return taken

    def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Note them."""
        self._waiting -= {each.tag for each in taken}
        self.acknowledged += [each.delivery for each in taken]
        if not self._waiting:
            self.ended.set()

    def is_lost(self, _: Sequence[Taken]) -> bool:
        """Nothing is."""
        return False

    def is_used_up(self, _: str, unacknowledged: int) -> bool:
        """If none other is left."""
        return unacknowledged == len(self._waiting)

    def pause(self) -> None:
        """Nothing to do."""

    def resume(self) -> None:
        """Nothing to do."""


def given(payload: bytes = b"1", *, queue: str = "q", exchange: str = "x", routing_key: str = "k", **properties: Any) -> Delivery:
    """A delivery of JSON."""
    values = {"content_type": "application/json", **properties}
    return delivery(queue=queue, exchange=exchange, routing_key=routing_key, payload=payload, properties=values, max_body_bytes=LIMIT)


async def receive(inbox: Inbox, deliveries: Sequence[Delivery], emit: events.Sink = lambda _: None, *, batch_size: int = 10) -> None:
    """Receive all of them: return when each is written or rejected, and acknowledged, once each."""
    source = GivenSource(deliveries)
    receiver = Receiver(source=source, inbox=inbox, batch_size=batch_size, batch_bytes=1 << 22, limit=10_000, emit=emit)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(receiver.run())
        await source.ended.wait()
        receiver.stop()
    assert sorted(map(id, deliveries)) == sorted(map(id, source.acknowledged))
