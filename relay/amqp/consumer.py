"""One queue, consumed on a channel of its own: a queue that is missing or refused troubles no other, and is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from relay import events
from relay.amqp import incoming, wire
from relay.amqp.confirms import Return
from relay.amqp.hold import Hold
from relay.amqp.link import Tap
from relay.inbox.events import QueueNarrowed, QueueOpened, QueueRefused
from relay.waiting import pause

LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries at a queue that is not there."""
_SENTENCES: Final = {
    403: "may not be read by this user: permit it (rabbitmqctl set_permissions)",
    404: "does not exist: declare it",
    405: "belongs to another connection alone: give the queue back, or name another",
}
"""By the reply code with which the broker closes the channel (AMQP 0-9-1, 1.2)."""
STREAM: Final = (
    "is a stream, which would lose what comes while no receiver is connected: "
    "name a classic or quorum queue that is bound as it is (RELAY_RECEIVE_QUEUES)"
)
_GONE: Final = "was deleted, or its leader is gone; it is asked for again"


class Consumer:
    """Consumes one queue until it is cancelled; it is the ear of its channel.

    Args:
        tap: of the connection.
        channel: its number, of nobody else.
        queue: its name.
        hold: what may be here unacknowledged.
        take: called with each delivery.
        drop: called when what was taken and not acknowledged is given back, because it is too much.
        emit: takes what becomes of the queue.

    """

    def __init__(
        self,
        *,
        tap: Tap,
        channel: int,
        queue: str,
        hold: Hold,
        take: Callable[[Consumer, incoming.Delivered], None],
        drop: Callable[[], None],
        emit: events.Sink,
    ) -> None:
        self._tap = tap
        self._channel = channel
        self.queue = queue
        self._hold = hold
        self._prefetch = hold.prefetch
        self._take = take
        self._drop = drop
        self._emit = emit
        self._told = False
        self._usable = False
        """There is a channel on which frames may be written."""
        self._closing = False
        """We have asked to close it."""
        self._why = _GONE
        """For which reason; none where too much was here."""
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the channel, or what consumes on it, has ended; done while there is none."""
        self._closed.set_result("has not been asked for yet")
        self._paused = False
        self.epoch = 0
        """Which channel deliveries came on: their tags mean nothing on a later one."""
        self.refused: str | None = None
        """Why nothing comes from the queue."""

    async def run(self) -> None:
        """Consume, and again when the queue went away, until cancelled."""
        failures = 0
        while True:
            self._open()
            sentence = await self._closed
            if not sentence:
                continue
            failures = 1 if self.refused is None else failures + 1
            self._tell(sentence)
            await asyncio.sleep(pause(failures, longest=LONGEST_PAUSE))

    def acknowledge(self, epoch: int, tag: int) -> None:
        """Tell the broker that all up to the tag are safe; what it does not hear any more comes again."""
        if epoch == self.epoch:
            self._write(incoming.acknowledge(self._channel, tag))
            self._hold.settle(tag)
            self._adapt()

    def pause(self) -> None:
        """Take no more; what is on its way still comes."""
        if not self._paused:
            self._paused = True
            self._write(incoming.cancel(self._channel))

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            self._write(incoming.consume(self._channel, self.queue))

    @property
    def lost(self) -> bool:
        """The connection is gone."""
        return self._tap.ended.done()

    def delivered(self, message: incoming.Delivered) -> None:
        """See `relay.amqp.incoming.Taker`. What still comes on a channel that is being closed comes again on the next."""
        if not self._usable:
            return
        too_much = self._hold.take(message.tag, len(message.body) + len(message.header))
        self._take(self, message)
        if too_much:
            self._give_back()

    def replied(self, method: tuple[int, int]) -> None:
        """Consuming, or cancelled by the broker."""
        if method == incoming.CONSUME_OK and (self.refused is not None or not self._told):
            self._told, self.refused = True, None
            self._emit(QueueOpened(self.queue))
        elif method == incoming.CANCEL and self._usable:
            self._close(_GONE)
        elif method == wire.CHANNEL_CLOSE_OK and self._closing:
            self._end(self._why)

    def closed(self, reason: Return) -> None:
        """The broker closed the channel: all that is unacknowledged goes back to the queue."""
        self._tap.write(wire.close_channel_ok(self._channel))
        sentence = STREAM if incoming.is_stream(reason) else _SENTENCES.get(reason.code)
        self._end(sentence or f"was refused by the broker ({reason.code} {reason.text})")

    def acked(self, tag: int, *, multiple: bool) -> None:
        """Nothing is published here."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """Nothing is published here."""

    def returned(self, relay_id: str, reason: Return) -> None:
        """Nothing is published here."""

    def _open(self) -> None:
        self._closed = asyncio.get_running_loop().create_future()
        self._usable = True
        self._tap.ears[self._channel] = self
        self._prefetch = self._hold.prefetch
        self._tap.write(incoming.open_consumer(self._channel, self.queue, self._prefetch))
        if self._paused:
            self._tap.write(incoming.cancel(self._channel))

    def _write(self, frame: bytes) -> None:
        """Nothing may follow what closes a channel: the broker would close the connection over it."""
        if self._usable:
            self._tap.write(frame)

    def _adapt(self) -> None:
        """Consume anew where another number may be here; what is here stays."""
        if self._prefetch == self._hold.prefetch:
            return
        self._prefetch = self._hold.prefetch
        frames = [incoming.bound(self._channel, self._prefetch)]
        if not self._paused:
            frames = [incoming.cancel(self._channel), *frames, incoming.consume(self._channel, self.queue)]
        self._write(b"".join(frames))

    def _give_back(self) -> None:
        """Too much is here already: the queue has it back, and sends fewer at a time."""
        self._emit(QueueNarrowed(self.queue, self._hold.bytes, self._hold.prefetch))
        self._close("")
        self._drop()

    def _close(self, why: str) -> None:
        self._leave()
        self._closing, self._why = True, why
        self._tap.write(wire.close_channel(self._channel))

    def _leave(self) -> None:
        """The channel's tags mean nothing any more."""
        if self._usable:
            self._usable = False
            self.epoch += 1
            self._hold.forget()

    def _end(self, sentence: str) -> None:
        self._leave()
        self._closing = False
        if not self._closed.done():
            self._closed.set_result(sentence)

    def _tell(self, sentence: str) -> None:
        if sentence != self.refused:
            self.refused = sentence
            self._emit(QueueRefused(self.queue, f"Queue {self.queue!r} {sentence}.", is_stream=sentence == STREAM))
