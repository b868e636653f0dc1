"""One exchange's own channel to the broker: if a message closes the channel, no other exchange is affected. No I/O.

RabbitMQ closes a channel over a missing exchange, a missing permission or a refused property, and does not name the message.
But it carries out a channel's methods in order. So a mark follows every few messages: a `basic.qos` without effect. The answer to a
mark proves that everything before the mark was accepted, even while the confirms are still open. When a channel dies:

- accepted messages without a confirm are sent again, and all of them must be confirmed before anything else is written;
- one message between the last answered mark and the next mark is the cause: these messages are sent again one by one;
- messages after the next mark were never processed, and are sent as if they had not been written.

Until the exchange is proven again, each burst waits for the confirms of the previous burst, and bursts double in size. So a message
is sent at most twice for each death that it did not cause, and the cause is always found. If the exchange is the cause, messages
that the broker may have accepted before are unknown, not refused. A new exchange sends its first message alone, until the mark behind
that message is answered. No exchange writes far ahead of its answered marks, so slow routing in the broker stops no other exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from relay import events
from relay.amqp import frames
from relay.amqp.confirms import ConfirmTracker
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.barriers import MARK_EVERY, MOST_UNSEEN, Barriers
from relay.amqp.publishing.exchange_memory import Standing
from relay.amqp.publishing.publish_batch import Slot, decide_all, doubt, relay_id
from relay.amqp.publishing.refusals import DOUBTED, NACKED, refusal_of, unroutable
from relay.amqp.publishing.routes import Route, Way
from relay.amqp.publishing.slot_encoder import SlotEncoder
from relay.amqp.publishing.turn import Turn
from relay.codec.encoder import Encoded, encode_batch
from relay.events import broker
from relay.message import CONFIRMED

CHUNK_BYTES: Final = 1 << 20
"""Bytes of one write: large enough that the cost of a write does not matter, and small enough that exchanges take turns."""
BLAMED_ONCE: Final = 2
"""A message with at most this many claims, including the current one, most likely was only in flight together with the cause. Such messages
are sent in small groups; messages with more claims are sent one by one."""
REMEMBER_REFUSAL: Final = 1.0
"""Seconds for which the relay does not ask the broker again for a missing exchange."""


class ChannelHost(Protocol):
    """What an exchange channel needs of its connection."""

    turn: Turn
    """Limits the time of this call."""

    def open(self, handler: frames.ChannelHandler) -> int | None:
        """Take a channel number; None while the broker allows no more channels."""

    @property
    def watched(self) -> bool:
        """Whether a message waits until the broker has processed everything that was written."""

    def write(self, data: bytes) -> None:
        """Write whole frames."""

    def closed(self, channel: int) -> None:
        """Answer the broker's `channel.close`; the number is free again."""

    def reroute(self, slots: Iterable[Slot]) -> None:
        """Move messages to other routes if later answers of the broker require it."""

    def changed(self, exchange_channel: ExchangeChannel) -> None:
        """Check the exchange channel again, because the broker has answered."""


class ExchangeChannel:
    """The waiting and in-flight messages of one route, in the order in which they were submitted."""

    def __init__(
        self, route: Route, standing: Standing, *, line: ChannelHost, encoder: SlotEncoder, clock: Callable[[], float], emit: events.Sink
    ) -> None:
        self.route = route
        self.standing = standing
        self.exchange = route[0]
        self.channel: int | None = None
        self._line = line
        self._encoder = encoder
        self._clock = clock
        self._emit = emit
        self._waiting: deque[Slot] = deque()
        self._accepted: deque[Slot] = deque()
        self._suspects: deque[Slot] = deque()
        self._marks: Barriers[Slot] = Barriers()
        self._book: ConfirmTracker[Slot] = ConfirmTracker(relay_id)
        self._strict = False
        """In quarantine after the channel died: each write waits for the confirms of the previous write, so that no message is sent a third
        time."""
        self._burst = 1

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not (self._waiting or self._suspects or self._accepted or self._book)

    @property
    def eager(self) -> bool:
        """Whether a waiting message may be written now."""
        waits = self._waiting or self._suspects or self._accepted
        return bool(waits) and (self.standing.proven or not self._book) and self._marks.room > 0

    @property
    def asking(self) -> bool:
        """Whether the relay still waits for the broker to accept or refuse this exchange; slow queues do not delay this answer."""
        return self._marks.open and not self.standing.proven

    @property
    def unseen(self) -> bool:
        """Whether the broker has not yet processed everything that was written."""
        return self._marks.open and bool(self._book)

    @property
    def in_flight(self) -> bool:
        """Whether a written message has no answer yet."""
        return bool(self._book)

    @property
    def undecided(self) -> int:
        """Messages that wait or are in flight."""
        return len(self._waiting) + len(self._suspects) + len(self._accepted) + len(self._book)

    @property
    def unconfirmed_since(self) -> float | None:
        """Time of the oldest write without a confirm, None if nothing is in flight."""
        if self._book.oldest is None:
            return None
        job, index = self._book.oldest
        return job.published[index]

    def submit(self, slots: Sequence[Slot]) -> None:
        """Take messages; `step` writes them."""
        now, refusal = self._clock(), self.standing.refusal
        if not refusal or now >= self.standing.refused_until:
            self._waiting.extend(slots)
            return
        for slot in slots:
            # A message that can never be sent gets its own result, not the exchange's. If this turn is over, its next attempt shows it.
            if self._line.turn.look() or self._encoder.encode(slot, now) is not None:
                decide_all([slot], refusal)

    def step(self) -> bool:
        """Write the next chunk, or one message alone while the exchange is not proven. Return False if no channel is available."""
        source = self._accepted or self._suspects or self._waiting
        slots, encodeds = self._next(source, min(self._burst_of(source), self._marks.room))
        if not slots:
            return True
        opening = b""
        if self.channel is None:
            self.channel = self._line.open(self)
            if self.channel is None:
                source.extendleft(reversed(slots))
                return False
            opening = frames.open_channel(self.channel)
        now = self._clock()
        for job, index in slots:
            job.published[index] = job.published[index] or now
        first = self._book.open(slots)
        self._line.write(b"".join((opening, *self._marked(encodeds, self.channel, first))))
        return True

    def suspects(self) -> list[Slot]:
        """Return the messages that the broker may have been processing when the connection ended, and forget all that are in flight."""
        _, suspects, untouched = self._forget_channel()
        return [*suspects, *untouched]

    def rest(self) -> int | None:
        """Give up the channel number while idle; the standing of the exchange stays."""
        channel, self.channel = self.channel, None
        self._forget_channel()
        return channel

    def acked(self, tag: int, *, multiple: bool) -> None:
        """The broker acks messages: they are confirmed, or unroutable if the broker returned them before."""
        now = self._clock()
        confirmed, returned = self._book.ack(tag, multiple=multiple)
        self._marks.confirmed(tag)
        for job, index in confirmed:
            job.decide(index, CONFIRMED, now)
        for (job, index), reason in returned:
            job.decide(index, unroutable(job.claims[index], reason))
        if self._encoder.keys.exchanges:
            self._took([*confirmed, *(slot for slot, _ in returned)])
        self._answered()

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """The broker refuses messages without a reason."""
        decide_all(self._book.nack(tag, multiple=multiple), NACKED)
        self._marks.confirmed(tag)
        self._answered()

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """The broker returns a message as unroutable; the message's result is decided when its ack arrives."""
        self._book.returned(relay_id, reason)

    def replied(self, method: tuple[int, int]) -> None:
        """The broker answers a mark. The mark after a first message proves the exchange, however long its queues take to confirm."""
        if method == frames.QOS_OK and self._marks.answered():
            was_unproven = not self.standing.proven
            if was_unproven and not self._strict:
                self._prove()
            if was_unproven or self.eager or self._line.watched:
                self._line.changed(self)

    def closed(self, reason: ReplyReason) -> None:
        """The channel died: divide the messages in flight by the marks, and refuse a message that is the only suspect."""
        if self.channel is not None:
            self._line.closed(self.channel)
        self.channel, self.standing.proven = None, False
        accepted, suspects, untouched = self._forget_channel()
        self._waiting.extendleft(reversed(untouched))
        self._accepted.extendleft(reversed(accepted))
        doubt(accepted)
        if len(suspects) == 1:
            self._blame(suspects[0], reason)
        else:
            doubt(suspects)
            self._suspects.extendleft(reversed(suspects))
        self._strict = self._strict or bool(self._suspects or self._accepted)
        self._burst = MARK_EVERY if self._strict else 1
        if not self.standing.announced:
            self.standing.announced = True
            self._emit(broker.ExchangeQuarantined(self.exchange, reason.text))
        self._line.changed(self)

    def _answered(self) -> None:
        if not self.standing.proven and not (self._book or self._suspects or self._accepted):
            self._burst *= 2
            if not self._strict or not self._waiting or self._burst > MOST_UNSEEN:
                self._prove()
        self._line.changed(self)

    def _took(self, slots: Sequence[Slot]) -> None:
        self._encoder.took(self.exchange, slots)

    def _prove(self) -> None:
        self.standing.proven, self._strict, self.standing.announced = True, False, False
        self._emit(broker.ExchangeProven(self.exchange))

    def _blame(self, slot: Slot, reason: ReplyReason) -> None:
        """Refuse a message. If the exchange is the reason, refuse all its messages except those that the broker may have accepted."""
        refusal = refusal_of(reason)
        if self._encoder.learn(slot, reason):
            waiting, self._waiting = self._waiting, deque()
            self._line.reroute(waiting)
        if not refusal.of_exchange:
            decide_all([slot], refusal)
            return
        for slots in (deque([slot]), self._accepted, self._suspects, self._waiting):
            for job, index in slots:
                job.decide(index, DOUBTED if index in job.doubted else refusal)
            slots.clear()
        self.standing.refusal, self.standing.refused_until = refusal, self._clock() + REMEMBER_REFUSAL

    def _marked(self, encodeds: Sequence[Encoded], channel: int, first: int) -> Iterator[bytes]:
        """Frames, with a mark after every few messages and after the last message."""
        mark = frames.ask_qos(channel)
        for run in self._marks.ask(first, len(encodeds)):
            yield encode_batch(encodeds[run], channel)
            yield mark

    def _forget_channel(self) -> tuple[list[Slot], list[Slot], list[Slot]]:
        """The messages that the channel leaves open: accepted, suspected, unprocessed."""
        marks, self._marks = self._marks, Barriers()
        return marks.part(self._book.close())

    def _burst_of(self, source: deque[Slot]) -> int:
        if self.route[1] is Way.ALONE:
            return MARK_EVERY if all(_is_blamed_once(slot) for slot in islice(source, MARK_EVERY)) else 1
        if self.standing.proven or source is self._accepted:
            return len(source)
        return 1 if source is self._suspects else self._burst

    def _next(self, source: deque[Slot], most: int) -> tuple[list[Slot], list[Encoded]]:
        """Take up to `most` messages, or about `CHUNK_BYTES`, from the front in this turn; decide messages that cannot be sent."""
        slots: list[Slot] = []
        encodeds: list[Encoded] = []
        now, size = self._clock(), 0
        while source and len(slots) < most and size < CHUNK_BYTES:
            slot = source.popleft()
            encoded = self._encoder.encode(slot, now)
            if encoded is not None:
                slots.append(slot)
                encodeds.append(encoded)
                size += sum(map(len, encoded))
            # Only a message with options can take long to encode.
            if slot[0].claims[slot[1]].options is not None and self._line.turn.look():
                break
        return slots, encodeds


def _is_blamed_once(slot: Slot) -> bool:
    job, index = slot
    return job.claims[index].attempts <= BLAMED_ONCE
