"""One queue, consumed on a channel that no other queue uses at that time: a missing or refused queue affects no other queue.

If the broker grants fewer channels than there are queues, the queues take turns. A turn ends once every delivery is acknowledged, so no
message is delivered again or counted twice. Then the next queue consumes on the same channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from relay import events
from relay.aio import pause
from relay.amqp import frames
from relay.amqp.close_reasons import Subject, said
from relay.amqp.connection import FrameRouter
from relay.amqp.consuming import deliveries
from relay.amqp.consuming.prefetch import PrefetchWindow
from relay.amqp.consuming.shared_channels import SharedChannel, SharedChannels
from relay.amqp.frames import ReplyReason
from relay.events.inbox import QueueNarrowed, QueueOpened, QueueRefused

LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries to consume a missing queue."""
STREAM: Final = (
    "is a stream, which would lose what comes while no receiver is connected: "
    "name a classic or quorum queue that is bound as it is (RELAY_RECEIVE_QUEUES)"
)
_SENTENCES: Final = {
    Subject.QUEUE_REFUSED: "may not be read by this user: permit it (rabbitmqctl set_permissions)",
    Subject.QUEUE_MISSING: "does not exist: declare it",
    Subject.QUEUE_TAKEN: "is consumed exclusively by another client: end that client, or name another queue",
    Subject.QUEUE_LOCKED: "is exclusive to another connection: end that connection, or name another queue",
    Subject.STREAM: STREAM,
}
TURN: Final = 1.0
"""Seconds after which a queue leaves its channel to a waiting queue."""
IDLE: Final = 0.1
"""Seconds without a delivery after which a queue also leaves its channel."""
COUNTED: Final = 0.25
"""Seconds in which the broker may still count a channel that it closed."""
_DELETED: Final = "was deleted, or its leader is gone; it is asked for again"


@dataclass(slots=True)
class _Turn:
    """A consumer's time on a channel."""

    channel: SharedChannel
    consuming: asyncio.Event = field(default_factory=asyncio.Event)
    """The broker has confirmed the consumer."""
    came: int = 0
    """How many deliveries have arrived."""
    leaving: bool = False
    """The turn ends once every delivery is acknowledged."""
    overfull: bool = False
    """Too many bytes have arrived: no further delivery is taken, and the channel is closed once no delivery is being written."""
    cancels: int = 0
    """Cancels that the broker has not answered: until the answer, deliveries may be on their way."""


class QueueConsumer:
    """Consumes one queue until it is cancelled; it is the handler of its channel.

    Args:
        tap: the connection's frame router.
        channels: the channels that the queues share.
        queue: the queue's name.
        window: limits the unacknowledged messages and their bytes.
        take: called with each delivery; returns the bytes that the delivery needs in memory.
        drop: called when deliveries that were not taken must return to the queue, because too many bytes have arrived.
        emit: sink of events about the queue.

    """

    def __init__(
        self,
        *,
        tap: FrameRouter,
        channels: SharedChannels,
        queue: str,
        window: PrefetchWindow,
        take: Callable[[QueueConsumer, deliveries.RawDelivery], int],
        drop: Callable[[QueueConsumer], None],
        emit: events.Sink,
    ) -> None:
        self._tap = tap
        self._channels = channels
        self._turn = _Turn(SharedChannel(0))
        self.queue = queue
        self._window = window
        self.prefetch = window.prefetch
        """How many messages the broker sends before it waits for acknowledgements."""
        self._take = take
        self._drop = drop
        self._emit = emit
        self._told = False
        self._usable = False
        """Whether the consumer has a channel on which frames may be written."""
        self._closing = False
        """Whether the relay has asked the broker to close the channel."""
        self._why = _DELETED
        """Why the relay closes the channel; empty if too many bytes were unacknowledged."""
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the channel or its consumer has ended; the future is done while there is no channel."""
        self._closed.set_result("has not been asked for yet")
        self._paused = False
        self.epoch = 0
        """Counts the channels on which deliveries arrive, because their tags are invalid on a later channel."""
        self.refused: str | None = None
        """Why the queue cannot be consumed."""

    async def run(self) -> None:
        """Consume until cancelled, and try again if the queue is deleted or refused."""
        failures = 0
        while True:
            sentence = await self._have_turn()
            if not sentence:
                continue
            failures = 1 if self.refused is None else failures + 1
            self._tell(sentence)
            await asyncio.sleep(pause(failures, longest=LONGEST_PAUSE))

    async def _have_turn(self) -> str:
        """Use a channel until another queue wants it or the channel ends. Return the sentence to report; empty if there is no fault."""
        channel = await self._channels.take()
        self._turn = _Turn(channel)
        self._open()
        ending = asyncio.create_task(self._leave_when_wanted(), name=f"turn of {self.queue}")
        try:
            sentence = await self._closed
        finally:
            ending.cancel()
        if self._channels.are_short and not channel.is_open:
            asyncio.get_running_loop().call_later(COUNTED, self._channels.give, channel)
        else:
            self._channels.give(channel)
        return sentence

    async def _leave_when_wanted(self) -> None:
        """End the turn when another queue waits: after `TURN` seconds, or earlier if no delivery arrives."""
        await self._turn.consuming.wait()
        now = asyncio.get_running_loop().time
        ends_at, came = now() + TURN, -1
        while now() < ends_at and not (self._channels.are_wanted and came == self._turn.came):
            came = self._turn.came
            await asyncio.sleep(IDLE)
        await self._channels.wanted()
        self._turn.leaving = True
        self._cancel()

    def acknowledge(self, epoch: int, tags: Sequence[int]) -> None:
        """Acknowledge these deliveries, lowest tag first; if a frame is lost, the broker delivers the messages again."""
        if epoch == self.epoch:
            self._window.settle(tags)
            self._write(deliveries.acknowledge(self._turn.channel.number, tags, first=self._window.first))
            self._adapt()
            self._leave_if_done()

    def pause(self) -> None:
        """Stop consuming; deliveries that are on their way still arrive."""
        if not self._paused:
            self._paused = True
            if not self._turn.leaving:
                self._cancel()

    def resume(self) -> None:
        """Consume again after a pause."""
        if self._paused:
            self._paused = False
            if not self._turn.leaving:
                self._write(deliveries.consume(self._turn.channel.number, self.queue))

    def return_surplus(self) -> None:
        """Close the channel if too many bytes have arrived. Call this while no delivery is being written: the broker delivers all again."""
        if self._turn.overfull and self._usable:
            self._close("")

    @property
    def lost(self) -> bool:
        """Whether the connection is lost."""
        return self._tap.ended.done()

    def delivered(self, message: deliveries.RawDelivery) -> None:
        """See `relay.amqp.consuming.deliveries.DeliveryHandler`.

        Deliveries that still arrive on a closing channel are ignored, because the broker delivers them again on the next channel.
        """
        if not self._usable or self._turn.overfull:
            return
        self._turn.came += 1
        if self._window.take(message.tag, self._take(self, message)):
            self._narrow()

    def replied(self, method: tuple[int, int]) -> None:
        """The broker has begun to deliver, or has cancelled the consumer."""
        if method == deliveries.CONSUME_OK:
            self._turn.consuming.set()
        if method == deliveries.CONSUME_OK and (self.refused is not None or not self._told):
            self._told, self.refused = True, None
            self._emit(QueueOpened(self.queue))
        elif method == deliveries.CANCEL_OK and self._usable:
            self._turn.cancels -= 1
            self._leave_if_done()
        elif method == deliveries.CANCEL and self._usable:
            self._close(_DELETED)
        elif method == frames.CHANNEL_CLOSE_OK and self._closing:
            self._end(self._why)

    def closed(self, reason: ReplyReason) -> None:
        """The broker closed the channel: all unacknowledged messages go back to the queue."""
        self._tap.write(frames.close_channel_ok(self._turn.channel.number))
        found = said(reason)
        sentence = _SENTENCES.get(found.about) if found else None
        self._end(sentence or f"was refused by the broker ({reason.code} {reason.text})")

    def acked(self, tag: int, *, multiple: bool) -> None:
        """Do nothing: this channel publishes nothing."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """Do nothing: this channel publishes nothing."""

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """Do nothing: this channel publishes nothing."""

    def _open(self) -> None:
        self._closed = asyncio.get_running_loop().create_future()
        self._usable = True
        self._tap.handlers[self._turn.channel.number] = self
        self.prefetch = self._window.prefetch
        begin = deliveries.consume_next if self._turn.channel.is_open else deliveries.open_consumer
        self._turn.channel.is_open = True
        self._tap.write(begin(self._turn.channel.number, self.queue, self.prefetch))
        if self._paused:
            self._cancel()

    def _write(self, frame: bytes) -> None:
        """Write a frame, unless the channel is being closed: over a frame after `channel.close` the broker closes the connection."""
        if self._usable:
            self._tap.write(frame)

    def _adapt(self) -> None:
        """Consume again with the new prefetch count if it has changed; unacknowledged messages stay unacknowledged."""
        if self.prefetch == self._window.prefetch:
            return
        self.prefetch = self._window.prefetch
        if self._turn.leaving:
            return
        if self._paused:
            self._write(deliveries.bound(self._turn.channel.number, self.prefetch))
            return
        self._cancel()
        self._write(deliveries.consume_next(self._turn.channel.number, self.queue, self.prefetch))

    def _cancel(self) -> None:
        if self._usable:
            self._turn.cancels += 1
            self._write(deliveries.cancel(self._turn.channel.number))

    def _leave_if_done(self) -> None:
        """Leave the channel open to the next queue, once no delivery can arrive on it and no delivery is unacknowledged."""
        if self._turn.leaving and self._usable and not self._turn.cancels and not self._window.messages:
            self._leave()
            # The future is done if the connection was lost meanwhile.
            if not self._closed.done():
                self._closed.set_result("")

    def _narrow(self) -> None:
        """Take no further delivery on this channel; on the next channel the broker sends fewer messages at a time."""
        self._emit(QueueNarrowed(self.queue, self._window.bytes, self._window.prefetch))
        # No cancel or nack: RabbitMQ 3.10 returns such messages to the back of a quorum queue without a delivery limit.
        self._turn.leaving = self._turn.overfull = True
        self._drop(self)

    def _close(self, why: str) -> None:
        self._leave()
        self._closing, self._why = True, why
        self._tap.write(frames.close_channel(self._turn.channel.number))

    def _leave(self) -> None:
        """Note that the channel's tags are invalid."""
        if self._usable:
            self._usable = False
            self.epoch += 1
            self._window.forget()

    def _end(self, sentence: str) -> None:
        self._leave()
        self._closing = False
        self._turn.channel.is_open = False
        if not self._closed.done():
            self._closed.set_result(sentence)

    def _tell(self, sentence: str) -> None:
        if sentence != self.refused:
            self.refused = sentence
            self._emit(QueueRefused(self.queue, f"Queue {self.queue!r} {sentence}.", is_stream=sentence == STREAM))
