"""Messages from queues over one supervised connection, whose channels the queues share; the receiver acknowledges each message."""

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
    """The channel on which a delivery arrived and must be acknowledged."""

    consumer: QueueConsumer
    epoch: int

    @property
    def is_lost(self) -> bool:
        """Whether the channel's delivery tags have become invalid."""
        return self.epoch != self.consumer.epoch or self.consumer.lost


def _told(link: BrokerConnection, consuming: asyncio.Task[None]) -> None:
    """Consumers end with their connection. If a consumer failed, end the connection: it must not stay open without consuming."""
    if not consuming.cancelled() and (error := consuming.exception()) is not None:
        link.tap.end(ConnectionLost(f"The queues could not be consumed ({error!r}); report this as a bug."))


class ConsumerConnection:
    """The connection from which the receiver takes deliveries.

    Args:
        urls: brokers; the first that answers is used.
        name: how the broker lists the connection.
        queues: names of the queues.
        prefetch: how many messages of one queue may be held unacknowledged.
        most_bytes: how many bytes of payloads and headers may be held unacknowledged, for all queues together.
        max_body_bytes: returns the current limit of a payload.
        emit: sink of events.
        heartbeat: seconds between two heartbeats.

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
        self._taking = False
        """Whether the receiver waits in `take`, so that no delivery is being written."""
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
        """Close the connection: unacknowledged messages go back to their queues. May be called at any time, and repeatedly."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def take(self, most: int, most_bytes: int) -> list[Taken]:
        """Wait for deliveries; return those that have arrived, at most `most` and about `most_bytes`."""
        self._taking = True
        for consumer in self._consumers:
            consumer.return_surplus()
        try:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._taking = False
        handful: list[Taken] = []
        size = 0
        while self._waiting and len(handful) < most and size < most_bytes:
            one = self._waiting.popleft()
            handful.append(one)
            size += one.delivery.size
        return handful

    def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Acknowledge these deliveries. If the frame is lost, the broker delivers the messages again, and the inbox recognises them."""
        tags: dict[ConsumerChannel, list[int]] = {}
        for each in taken:
            tags.setdefault(each.channel, []).append(each.tag)
        for channel, its in tags.items():
            channel.consumer.acknowledge(channel.epoch, its)

    def is_lost(self, taken: Sequence[Taken]) -> bool:
        """Whether all these messages will be delivered again, because the channels on which they arrived are closed."""
        return all(each.channel.is_lost for each in taken)

    def is_used_up(self, queue: str, unacknowledged: int) -> bool:
        """Whether this number of unacknowledged deliveries uses up a queue's prefetch, so that the broker sends no more."""
        return any(each.queue == queue and unacknowledged >= each.prefetch for each in self._consumers)

    def pause(self) -> None:
        """Stop consuming from the queues; deliveries that have arrived can still be taken and acknowledged."""
        self._paused = True
        for consumer in self._consumers:
            consumer.pause()

    def resume(self) -> None:
        """Consume from the queues again."""
        self._paused = False
        for consumer in self._consumers:
            consumer.resume()

    @property
    def reasons(self) -> dict[str, str]:
        """Sentences about queues that cannot be consumed, by queue."""
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
        """Forget deliveries that were not taken: the broker delivers them again."""
        if lost.allowed is not None:
            self._limit.refused(self._channels.count, lost.allowed, sharing=len(self._queues))
        if self._consuming is not None:
            self._consuming.cancel()
        self._waiting.clear()

    def _share(self, channels: int) -> SharedChannels:
        """A channel for each queue, or as many as the broker grants."""
        queues = len(self._queues)
        return SharedChannels(min(channels or queues, queues), are_short=0 < channels < queues)

    async def _consume(self, consumers: Sequence[QueueConsumer]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consumer.run())

    def _prefetch_window(self) -> PrefetchWindow:
        """The window of one queue, with the queue's share of the bytes."""
        return PrefetchWindow(most=self._prefetch, most_bytes=self._most_bytes // len(self._queues))

    def _drop(self, consumer: QueueConsumer) -> None:
        """Forget deliveries that were not taken. They return to the queue now, or at the next call of `take`."""
        self._waiting = deque(each for each in self._waiting if each.channel.consumer is not consumer)
        if self._taking:
            consumer.return_surplus()

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
        except Exception as error:  # noqa: BLE001 - whatever a client sent must not stop other messages
            names = (message.exchange.decode(errors="replace"), message.routing_key.decode(errors="replace"))
            return unreadable(queue=queue, names=names, header=message.header, payload=message.body, error=error)
