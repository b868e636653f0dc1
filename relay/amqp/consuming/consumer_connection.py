"""Messages from queues: one connection, kept up, whose channels the queues share; what is taken is acknowledged by hand."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from relay import events
from relay.amqp.channel_limit import ChannelLimit
from relay.amqp.connection import BrokerConnection, ConnectionLost
from relay.amqp.consuming.deliveries import DeliveryReader, RawDelivery
from relay.amqp.consuming.prefetch import PrefetchWindow
from relay.amqp.consuming.queue_consumer import QueueConsumer
from relay.amqp.consuming.shared_channels import SharedChannels
from relay.amqp.supervisor import Supervisor
from relay.inbox.delivery import Delivery, delivery, unreadable
from relay.inbox.ports import Taken
from relay.net.secret_url import Secret


class ConsumerChannel(NamedTuple):
    """Where a delivery came from and is acknowledged."""

    consumer: QueueConsumer
    epoch: int

    @property
    def is_lost(self) -> bool:
        """Its tags mean nothing any more."""
        return self.epoch != self.consumer.epoch or self.consumer.lost


def _told(link: BrokerConnection, consuming: asyncio.Task[None]) -> None:
    """Consumers end with their connection. If one failed, end the connection, which must not stay open and take nothing."""
    if not consuming.cancelled() and (error := consuming.exception()) is not None:
        link.tap.end(ConnectionLost(f"The queues could not be consumed ({error!r}); report this as a bug."))


class ConsumerConnection:
    """What the receiver takes deliveries from.

    Args:
        urls: brokers, the first that answers.
        name: how the broker lists the connection.
        queues: their names.
        prefetch: messages of one queue that may be here unacknowledged.
        most_bytes: bytes of payloads and headers that may be here unacknowledged, of all queues together.
        max_body_bytes: asked for the limit of a payload that holds now.
        emit: takes events.
        heartbeat: seconds.

    """

    def __init__(
        self,
        *,
        urls: Sequence[Secret],
        name: str,
        queues: Sequence[str],
        prefetch: int,
        most_bytes: int,
        max_body_bytes: Callable[[], int],
        emit: events.Sink,
        heartbeat: int = 15,
    ) -> None:
        self._queues = queues
        self._prefetch = prefetch
        self._most_bytes = most_bytes
        self._max_body_bytes = max_body_bytes
        self._emit = emit
        self._limit = ChannelLimit(clock=time.monotonic, emit=emit, spares=False)
        self._channels = SharedChannels(0)
        self._arrived = asyncio.Event()
        self._paused = False
        self._waiting: deque[Taken] = deque()
        self._consumers: list[QueueConsumer] = []
        self._consuming: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._supervisor = Supervisor(
            urls=urls,
            name=f"outbox-relay/{name}/receive",
            heartbeat=heartbeat,
            tenant=self,
            clock=time.monotonic,
            emit=emit,
            cut=DeliveryReader,
        )

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervisor.run(), name="broker supervisor")

    async def aclose(self) -> None:
        """Close the connection: what is not acknowledged goes back to its queue. Legal at any time, and again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def take(self, most: int, most_bytes: int) -> list[Taken]:
        """Wait for deliveries; return what is here, at most so many and about so many bytes."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        handful: list[Taken] = []
        size = 0
        while self._waiting and len(handful) < most and size < most_bytes:
            one = self._waiting.popleft()
            handful.append(one)
            size += one.delivery.size
        return handful

    def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Tell the broker that these are safe. If it does not receive this, it delivers them again, and they are recognised then."""
        tags: dict[ConsumerChannel, list[int]] = {}
        for each in taken:
            tags.setdefault(each.channel, []).append(each.tag)
        for channel, its in tags.items():
            channel.consumer.acknowledge(channel.epoch, its)

    def is_lost(self, taken: Sequence[Taken]) -> bool:
        """Every delivery of it will come again, since the channels that it came on are closed."""
        return all(each.channel.is_lost for each in taken)

    def pause(self) -> None:
        """Take no more from the queues; what is here already can still be taken and acknowledged."""
        self._paused = True
        for consumer in self._consumers:
            consumer.pause()

    def resume(self) -> None:
        """Take from the queues again."""
        self._paused = False
        for consumer in self._consumers:
            consumer.resume()

    @property
    def reasons(self) -> dict[str, str]:
        """Sentences about queues that give nothing, by what they are about."""
        return {f"queue {each.queue}": f"Queue {each.queue!r} {each.refused}." for each in self._consumers if each.refused}

    def up(self, link: BrokerConnection) -> None:
        """Consume on a new connection."""
        self._channels = channels = self._share(self._limit.of(link.channel_max, sharing=len(self._queues)))
        self._consumers = [
            QueueConsumer(
                tap=link.tap, channels=channels, queue=queue, window=self._prefetch_window(), take=self._taken, drop=self._drop,
                emit=self._emit,
            )
            for queue in self._queues
        ]  # fmt: skip
        if self._paused:
            self.pause()
        self._consuming = asyncio.create_task(self._consume(self._consumers), name="consumers")
        self._consuming.add_done_callback(partial(_told, link))

    def down(self, lost: ConnectionLost) -> None:
        """Forget what was not taken: the broker delivers it again."""
        if lost.allowed is not None:
            self._limit.refused(self._channels.count, lost.allowed, sharing=len(self._queues))
        if self._consuming is not None:
            self._consuming.cancel()
        self._waiting.clear()

    def _share(self, channels: int) -> SharedChannels:
        """A channel for each queue, or all that the broker grants."""
        queues = len(self._queues)
        return SharedChannels(min(channels or queues, queues), are_short=0 < channels < queues)

    async def _consume(self, consumers: Sequence[QueueConsumer]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consumer.run())

    def _prefetch_window(self) -> PrefetchWindow:
        """Each queue has its share."""
        return PrefetchWindow(most=self._prefetch, most_bytes=self._most_bytes // len(self._queues))

    def _drop(self) -> None:
        """Forget what was not taken of channels that returned it to the queue."""
        kept = [each for each in self._waiting if not each.channel.is_lost]
        self._waiting.clear()
        self._waiting.extend(kept)

    def _taken(self, consumer: QueueConsumer, message: RawDelivery) -> int:
        taken = self._read(consumer.queue, message)
        self._waiting.append(Taken(taken, ConsumerChannel(consumer, consumer.epoch), message.tag))
        self._arrived.set()
        return taken.size

    def _read(self, queue: str, message: RawDelivery) -> Delivery:
        try:
            return delivery(
                queue=queue,
                exchange=message.exchange.decode(),
                routing_key=message.routing_key.decode(),
                payload=message.body,
                properties=message.properties(),
                max_body_bytes=self._max_body_bytes(),
            )
        except Exception as error:  # noqa: BLE001 - whatever a client sent, its neighbours come in
            names = (message.exchange.decode(errors="replace"), message.routing_key.decode(errors="replace"))
            return unreadable(queue=queue, names=names, header=message.header, payload=message.body, error=error)
