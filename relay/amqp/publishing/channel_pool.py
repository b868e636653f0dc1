"""The exchange channels of one connection, their channel numbers, and their turns to write. No I/O of its own."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable
from itertools import chain
from typing import Protocol

from relay import events
from relay.amqp import frames
from relay.amqp.publishing.channel_allowance import ChannelAllowance
from relay.amqp.publishing.closing_channel import ClosingChannel
from relay.amqp.publishing.exchange_channel import ExchangeChannel
from relay.amqp.publishing.exchange_memory import ExchangeMemory
from relay.amqp.publishing.foreign_names import ForeignNames
from relay.amqp.publishing.isolation import Isolation
from relay.amqp.publishing.key_channel import KeyChannel
from relay.amqp.publishing.probes import MAX_PROBES, Probes
from relay.amqp.publishing.publish_batch import PublishBatch, Slot, by_batch
from relay.amqp.publishing.refused_keys import RefusedKeys
from relay.amqp.publishing.routes import Route, Way, by_route
from relay.amqp.publishing.slot_encoder import SlotEncoder
from relay.amqp.publishing.turn import Turn
from relay.codec.encoder import Encoder


class Transport(Protocol):
    """The transport of a connection."""

    @property
    def handlers(self) -> dict[int, frames.ChannelHandler]:
        """The handler of each channel."""

    @property
    def writable(self) -> bool:
        """Whether the transport is open and has room in its buffer."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""


class ChannelPool:
    """Routes messages to the channel of their exchange and lets these channels take turns at the socket.

    Args:
        pipe: the connection.
        user: the user who is logged in; None if the user is not known.
        encoder: makes frames of messages.
        channels: how many channels the connection may have.
        clock: monotonic seconds.
        emit: sink of events.
        blamed: ids of messages over which a connection may have ended.

    """

    def __init__(
        self,
        *,
        pipe: Transport,
        user: str | None,
        encoder: Encoder,
        channels: ChannelAllowance,
        clock: Callable[[], float],
        emit: events.Sink,
        blamed: Container[str] = (),
    ) -> None:
        self._pipe = pipe
        self._user = user
        self._blamed = blamed
        self._later = channels.later
        self._tell_starved = channels.starved
        self.turn = Turn(clock, channels.wake, self.pump)
        self._keys = RefusedKeys(clock)
        self._encoder = SlotEncoder(encoder, ForeignNames(user), self._keys)
        self._channel_max = channels.most or 65535
        self._cap = min(channels.idle, self._channel_max)
        self._clock = clock
        self._emit = emit
        max_probes = max(1, min(MAX_PROBES, self._cap // 2))
        self._probes = Probes(most=max_probes, clock=clock)
        self._memory = ExchangeMemory(clock)
        self._exchange_channels: dict[Route, ExchangeChannel] = {}
        """The exchange channels of all routes that have a channel or a message."""
        self._resting: OrderedDict[ExchangeChannel, None] = OrderedDict()
        """Idle exchange channels that are open, the least recently used first."""
        self._ready: OrderedDict[ExchangeChannel, None] = OrderedDict()
        self._starved: OrderedDict[ExchangeChannel, None] = OrderedDict()
        """Exchange channels that wait for a channel number."""
        self._alone = Isolation(self._exchange_channels, clock)
        self._freed: deque[int] = deque()
        self._last_channel = 0
        self.blocked = False

    def submit(self, job: PublishBatch, places: Collection[int] | None = None) -> None:
        """Take a batch, or the messages at these places of it. Before this call returns, it writes as much as one turn allows."""
        self._hand_over(job, places)
        self.pump()

    def reroute(self, slots: Iterable[Slot]) -> None:
        """Move messages to other routes if later answers of the broker require it; the caller then calls `pump`."""
        for job, places in by_batch(slots).items():
            self._hand_over(job, places)

    def pump(self) -> None:
        """Write until nothing may be written, the transport is full or the turn is over."""
        if not self.turn.begin():
            return
        while self._pipe.writable and not self.blocked and (exchange_channel := self._next()):
            self._step(exchange_channel)
            if self.turn.over:
                self.turn.pause()
                break
        # If nothing can be written, an event follows anyway: the transport has room again, or the connection ends.
        if (self._probes.waiting or self._alone.active) and self._pipe.writable and not self.blocked:
            self.turn.look_again()

    def _step(self, exchange_channel: ExchangeChannel) -> None:
        """Write a chunk of one exchange, or let the exchange wait if it may not write yet."""
        if not exchange_channel.eager:
            self._rest(exchange_channel)
        elif self._starved and exchange_channel.channel is not None:
            self._give_way(exchange_channel)
        elif exchange_channel.route[1] is Way.ALONE and not self._alone.is_going(exchange_channel):
            self._alone.add(exchange_channel)
        elif self._probes.check_full() and self._is_new(exchange_channel):
            self._probes.wait(exchange_channel)
        elif exchange_channel.step():
            self._ready[exchange_channel] = None
            if exchange_channel.asking:
                self._probes.began(exchange_channel)
        else:
            self._starved[exchange_channel] = None
            self._tell_starved(self.exchanges)

    def suspects(self) -> list[Slot]:
        """Return the messages that the broker may have been processing when the connection ended, and forget all that are in flight."""
        return [slot for exchange_channel in self._exchange_channels.values() for slot in exchange_channel.suspects()]

    def silent(self) -> dict[str, float]:
        """For each exchange: the seconds for which a written message has had no confirm, or a message could not be written."""
        now = self._clock()
        waits: dict[str, float] = {}
        written = [(exchange_channel, exchange_channel.unconfirmed_since) for exchange_channel in self._exchange_channels.values()]
        for exchange_channel, since in chain(written, self._probes.waiting.items(), self._alone.kept(self._ready)):
            if since is not None:
                waits[exchange_channel.exchange] = max(now - since, waits.get(exchange_channel.exchange, 0.0))
        return waits

    def in_flight(self) -> dict[str, int]:
        """Messages that were handed over and have no result yet, by exchange."""
        undecided: Counter[str] = Counter()
        for exchange_channel in self._exchange_channels.values():
            undecided[exchange_channel.exchange] += exchange_channel.undecided
        return dict(+undecided)

    @property
    def channels(self) -> int:
        """Channels that are open or requested."""
        return len(self._pipe.handlers)

    @property
    def exchanges(self) -> int:
        """How many exchanges had a message lately."""
        return len(self._memory)

    @property
    def is_short(self) -> bool:
        """Whether an exchange waits for a channel."""
        return bool(self._starved)

    @property
    def watched(self) -> bool:
        """Whether a message waits until the broker has processed everything that was written."""
        return self._alone.active

    def open(self, handler: frames.ChannelHandler) -> int | None:
        """Take a channel number for an exchange; if too many channels are open, an idle exchange releases its channel first."""
        if len(self._pipe.handlers) >= self._cap and self._resting:
            self._let_go(self._resting.popitem(last=False)[0])
        if not self._has_number:
            return None
        if self._last_channel < self._channel_max:
            self._last_channel += 1
            number = self._last_channel
        else:
            number = self._freed.popleft()
        self._pipe.handlers[number] = handler
        return number

    def write(self, data: bytes) -> None:
        """Hand whole frames to the socket."""
        self._pipe.write(data)

    def closed(self, channel: int) -> None:
        """Answer the broker's `channel.close` before anything else is written; then the number may be used again."""
        self._pipe.write(frames.close_channel_ok(channel))
        self.free(channel)

    def free(self, channel: int) -> None:
        """Return a channel number, which is reused as late as possible."""
        if self._later is None:
            self._free_now(channel)
        else:
            self._pipe.handlers[channel] = ClosingChannel(self, channel)
            self._later(lambda: self._free_now(channel))

    def _free_now(self, channel: int) -> None:
        if self._pipe.handlers.pop(channel, None) is not None:
            self._freed.append(channel)
        if self._later is not None:
            self.pump()

    def changed(self, exchange_channel: ExchangeChannel) -> None:
        """The broker has answered: write messages that the answer allows, or free a channel number for an exchange without a channel."""
        if exchange_channel in self._probes.unanswered and not exchange_channel.asking:
            self._probes.ended(exchange_channel)
        if exchange_channel.eager:
            self._ready[exchange_channel] = None
        else:
            self._rest(exchange_channel)
        if self._ready or self._starved or self._probes.waiting or self._alone.active:
            self.pump()

    def _hand_over(self, job: PublishBatch, places: Collection[int] | None) -> None:
        self.turn.begin()
        for route, several in by_route(job.batch, self._user, self._keys, places, self._blamed).items():
            exchange_channel = self._exchange_channel(route)
            exchange_channel.submit([(job, place) for place in several])
            self._ready[exchange_channel] = None

    @property
    def _has_number(self) -> bool:
        return len(self._pipe.handlers) < self._channel_max

    def _is_new(self, exchange_channel: ExchangeChannel) -> bool:
        """Whether the exchange is new: no question about it is open, and the broker has not accepted a message for it on any route."""
        return exchange_channel not in self._probes.unanswered and not self._memory.is_proven(exchange_channel.exchange)

    def _next(self) -> ExchangeChannel | None:
        """The next exchange channel to write: a waiting one that may write now, or otherwise one that must write alone."""
        if not (self._alone.active and self._alone.holds_others()):
            if self._starved and self._has_number:
                return self._starved.popitem(last=False)[0]
            if self._probes.waiting and (exchange_channel := self._probes.next()):
                return exchange_channel
            if self._ready:
                return self._ready.popitem(last=False)[0]
        return self._alone.next() if self._alone.active else None

    def _exchange_channel(self, route: Route) -> ExchangeChannel:
        """The exchange channel of a route; it no longer counts as idle."""
        exchange_channel = self._exchange_channels.get(route)
        standing = self._memory.standing_of(route, exchange_channel.standing if exchange_channel else None)
        if exchange_channel is None:
            kind = KeyChannel if route[1] is Way.ASKED else ExchangeChannel
            exchange_channel = kind(route, standing, line=self, encoder=self._encoder, clock=self._clock, emit=self._emit)
            self._exchange_channels[route] = exchange_channel
        self._resting.pop(exchange_channel, None)
        return exchange_channel

    def _rest(self, exchange_channel: ExchangeChannel) -> None:
        """Note an exchange channel that has become idle. The work is constant, however many exchange channels there are."""
        if not exchange_channel.idle:
            return
        self._resting.pop(exchange_channel, None)
        if exchange_channel.channel is None or self._starved:
            self._let_go(exchange_channel)
        else:
            self._resting[exchange_channel] = None

    def _let_go(self, exchange_channel: ExchangeChannel) -> None:
        """Forget an idle exchange channel, and close it if it is open; the standing of its exchange stays."""
        self._close(exchange_channel)
        self._starved.pop(exchange_channel, None)
        self._probes.forget(exchange_channel)
        self._alone.discard(exchange_channel)
        if self._exchange_channels.get(exchange_channel.route) is exchange_channel:
            del self._exchange_channels[exchange_channel.route]

    def _give_way(self, exchange_channel: ExchangeChannel) -> None:
        """Write nothing more, because another exchange waits for a channel. Close this channel once nothing is in flight on it."""
        if not exchange_channel.in_flight:
            self._close(exchange_channel)
            self._starved[exchange_channel] = None

    def _close(self, exchange_channel: ExchangeChannel) -> None:
        channel = exchange_channel.rest()
        self._probes.ended(exchange_channel)
        if channel is not None:
            self._pipe.handlers[channel] = ClosingChannel(self, channel)
            self._pipe.write(frames.close_channel(channel))
