"""One connection at work: outlets by exchange, the channels they use, and whose turn it is to write. No I/O of its own."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass
from typing import Final, Protocol

from relay import events
from relay.amqp import frames
from relay.amqp.publishing.closing_channel import ClosingChannel
from relay.amqp.publishing.exchange_channel import ExchangeChannel
from relay.amqp.publishing.foreign_names import ForeignNames
from relay.amqp.publishing.isolation import Isolation
from relay.amqp.publishing.probes import ASKED_AT_ONCE, Probes, Wake
from relay.amqp.publishing.publish_batch import PublishBatch, Slot
from relay.amqp.publishing.routes import Route, Way, by_route
from relay.amqp.publishing.slot_encoder import SlotEncoder
from relay.codec.encoder import Encoder

OUTLETS_PER_CHANNEL: Final = 10
"""Exchanges remembered for each open channel that is allowed: a name costs a few kilobytes, a channel costs the broker a process."""
FORGET_AFTER: Final = 600.0
"""Seconds without a message after which an exchange that has no channel is forgotten; by default no backoff is longer."""


class Transport(Protocol):
    """The transport under a session."""

    @property
    def ears(self) -> dict[int, frames.ChannelHandler]:
        """Who hears which channel."""

    @property
    def writable(self) -> bool:
        """Open, and with room in its buffer."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""


@dataclass(frozen=True)
class ChannelAllowance:
    """The channels that a connection may have."""

    most: int
    """How many may be open, 0 for any number."""
    idle: int
    """Idle ones above this number are closed."""
    starved: Callable[[int], None] = lambda _: None
    """Hears how many exchanges share them when one of these gets none."""
    later: Callable[[Callable[[], None]], object] | None = None
    """Calls what it is given when the broker counts a channel no more that was just closed; None: it does so at once."""
    wake: Wake = lambda _seconds, _call: None
    """Calls a function after so many seconds."""


class ChannelPool:
    """Routes messages to the outlet of their exchange and lets outlets take turns at the socket.

    Args:
        pipe: the connection.
        user: who is logged in, None where that is not known.
        encoder: makes frames of messages.
        channels: how many there may be.
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
        self._encoder = SlotEncoder(encoder, ForeignNames(user))
        self._channel_max = channels.most or 65535
        self._cap = min(channels.idle, self._channel_max)
        self._clock = clock
        self._emit = emit
        most_asked = max(1, min(ASKED_AT_ONCE, self._cap // 2))
        self._probes = Probes(most=most_asked, clock=clock, wake=channels.wake, pump=self.pump)
        self._outlets: dict[Route, ExchangeChannel] = {}
        self._resting: OrderedDict[ExchangeChannel, None] = OrderedDict()
        """Idle with a channel, the least recently used first."""
        self._parted: OrderedDict[ExchangeChannel, float] = OrderedDict()
        """Idle without a channel, and since when."""
        self._ready: OrderedDict[ExchangeChannel, None] = OrderedDict()
        self._starved: OrderedDict[ExchangeChannel, None] = OrderedDict()
        """Waiting for a channel number."""
        self._alone = Isolation(self._outlets, clock)
        self._freed: deque[int] = deque()
        self._last_channel = 0
        self.blocked = False

    def submit(self, job: PublishBatch, places: Collection[int] | None = None) -> None:
        """Take a batch, or these messages of it; what may be written is written before this returns."""
        for route, several in by_route(job.batch, self._user, places, self._blamed).items():
            outlet = self._outlet(route)
            outlet.submit([(job, place) for place in several])
            self._ready[outlet] = None
        self.pump()

    def pump(self) -> None:
        """Write as long as something may be written and the transport takes it; exchanges take turns."""
        while self._pipe.writable and not self.blocked and (outlet := self._next()):
            if not outlet.eager:
                self._rest(outlet)
            elif self._starved and outlet.channel is not None:
                self._give_way(outlet)
            elif outlet.route[1] is Way.ALONE and not self._alone.is_going(outlet):
                self._alone.add(outlet)
            elif self._probes.full and outlet not in self._probes.asked and not self._is_proven(outlet):
                self._probes.wait(outlet)
            elif outlet.step():
                self._ready[outlet] = None
                if outlet.asking:
                    self._probes.began(outlet)
            else:
                self._starved[outlet] = None
                self._tell_starved(self.exchanges)

    def suspects(self) -> list[Slot]:
        """What the broker may have been looking at when the connection ended; nothing is in flight any more."""
        return [slot for outlet in self._outlets.values() for slot in outlet.suspects()]

    def silent(self) -> dict[str, float]:
        """Seconds since the oldest write without a confirm, or since the broker could not be asked for the exchange, by exchange."""
        now = self._clock()
        waits = {outlet.exchange: now - since for outlet, since in self._probes.waiting.items()}
        for outlet in self._outlets.values():
            seconds = outlet.silent_for(now)
            if seconds is not None:
                waits[outlet.exchange] = max(seconds, waits.get(outlet.exchange, 0.0))
        return waits

    def in_flight(self) -> dict[str, int]:
        """Messages handed over and not decided, by exchange."""
        held: Counter[str] = Counter()
        for outlet in self._outlets.values():
            held[outlet.exchange] += outlet.held
        return dict(+held)

    @property
    def channels(self) -> int:
        """Channels that are open, or were asked for."""
        return len(self._pipe.ears)

    @property
    def exchanges(self) -> int:
        """Exchanges that had a message lately."""
        return len({exchange for exchange, _ in self._outlets})

    @property
    def watched(self) -> bool:
        """Something waits until the broker has looked at all that is written."""
        return self._alone.active

    def open(self, ear: frames.ChannelHandler) -> int | None:
        """Take a channel number for an outlet, after an idle outlet has let go of its channel if too many are open."""
        if len(self._pipe.ears) >= self._cap and self._resting:
            self._part(self._resting.popitem(last=False)[0])
        if not self._has_number:
            return None
        if self._last_channel < self._channel_max:
            self._last_channel += 1
            number = self._last_channel
        else:
            number = self._freed.popleft()
        self._pipe.ears[number] = ear
        return number

    def write(self, data: bytes) -> None:
        """Hand whole frames to the socket."""
        self._pipe.write(data)

    def closed(self, channel: int) -> None:
        """Answer the broker's `channel.close` before anything else is written; then the number may be used again."""
        self._pipe.write(frames.close_channel_ok(channel))
        self.free(channel)

    def free(self, channel: int) -> None:
        """A channel number may be used again, as late as possible."""
        if self._later is None:
            self._free_now(channel)
        else:
            self._pipe.ears[channel] = ClosingChannel(self, channel)
            self._later(lambda: self._free_now(channel))

    def _free_now(self, channel: int) -> None:
        if self._pipe.ears.pop(channel, None) is not None:
            self._freed.append(channel)
        if self._later is not None:
            self.pump()

    def changed(self, outlet: ExchangeChannel) -> None:
        """Something was answered: write what that allows, or make room for an outlet without a channel."""
        if outlet in self._probes.asked and not outlet.asking:
            self._probes.ended(outlet)
        if outlet.eager:
            self._ready[outlet] = None
        else:
            self._rest(outlet)
        if self._ready or self._starved or self._probes.waiting or self._alone.active:
            self.pump()

    @property
    def _has_number(self) -> bool:
        return len(self._pipe.ears) < self._channel_max

    def _is_proven(self, outlet: ExchangeChannel) -> bool:
        """Whether the broker takes what goes to its exchange, on one of its routes."""
        siblings = (self._outlets.get((outlet.exchange, way)) for way in Way)
        return any(sibling is not None and sibling.proven for sibling in siblings)

    def _next(self) -> ExchangeChannel | None:
        """Whose turn it is."""
        if not self._alone.active:
            return self._next_beside_others()
        outlet = None if self._alone.hushes else self._next_beside_others()
        return outlet or self._alone.next()

    def _next_beside_others(self) -> ExchangeChannel | None:
        """First of those that waited for what there is now."""
        if self._starved and self._has_number:
            return self._starved.popitem(last=False)[0]
        if self._probes.waiting and (outlet := self._probes.next()):
            return outlet
        return self._ready.popitem(last=False)[0] if self._ready else None

    def _outlet(self, route: Route) -> ExchangeChannel:
        """Its outlet, which is idle no more."""
        outlet = self._outlets.get(route)
        if outlet is None:
            outlet = ExchangeChannel(route, line=self, encoder=self._encoder, clock=self._clock, emit=self._emit)
            self._outlets[route] = outlet
        self._resting.pop(outlet, None)
        self._parted.pop(outlet, None)
        return outlet

    def _rest(self, outlet: ExchangeChannel) -> None:
        """Note an outlet that has become idle: constant work, however many there are."""
        if not outlet.idle:
            return
        self._resting.pop(outlet, None)
        if outlet.channel is None or self._starved:
            self._part(outlet)
        else:
            self._resting[outlet] = None

    def _part(self, outlet: ExchangeChannel) -> None:
        """Close the channel of an idle outlet, if it has one, and forget those that were idle for too long."""
        self._close(outlet)
        now = self._clock()
        self._starved.pop(outlet, None)
        self._probes.forget(outlet)
        self._alone.discard(outlet)
        self._parted[outlet] = now
        self._parted.move_to_end(outlet)
        while len(self._parted) > self._cap * OUTLETS_PER_CHANNEL or next(iter(self._parted.values())) < now - FORGET_AFTER:
            del self._outlets[self._parted.popitem(last=False)[0].route]

    def _give_way(self, outlet: ExchangeChannel) -> None:
        """Write nothing more while others wait for a channel, and leave this one to them once all that is in flight is answered."""
        if not outlet.in_flight:
            self._close(outlet)
            self._starved[outlet] = None

    def _close(self, outlet: ExchangeChannel) -> None:
        channel = outlet.rest()
        self._probes.ended(outlet)
        if channel is not None:
            self._pipe.ears[channel] = ClosingChannel(self, channel)
            self._pipe.write(frames.close_channel(channel))
