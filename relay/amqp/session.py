"""One connection at work: outlets by exchange, the channels they use, and whose turn it is to write. No I/O of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from relay import events
from relay.amqp import wire
from relay.amqp.confirms import Return
from relay.amqp.jobs import Job
from relay.amqp.outlets import Outlet, Slot
from relay.encoding import Encodes

OUTLETS_PER_CHANNEL = 10
"""Exchanges remembered for each open channel that is allowed: a name costs a kilobyte, a channel costs the broker a process."""


class Pipe(Protocol):
    """The transport under a session."""

    @property
    def ears(self) -> dict[int, wire.Ear]:
        """Who hears which channel."""

    @property
    def writable(self) -> bool:
        """Open, and with room in its buffer."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""


class Session:
    """Routes messages to the outlet of their exchange and lets outlets take turns at the socket."""

    def __init__(
        self, *, pipe: Pipe, encoder: Encodes, channel_max: int, open_channels: int, clock: Callable[[], float], emit: events.Sink
    ) -> None:
        self._pipe = pipe
        self._encoder = encoder
        self._channel_max = channel_max or 65535
        self._cap = min(open_channels, self._channel_max)
        self._clock = clock
        self._emit = emit
        self._outlets: OrderedDict[str, Outlet] = OrderedDict()
        self._ready: dict[Outlet, None] = {}
        self._starved: dict[Outlet, None] = {}
        self._last_channel = 0
        self.blocked = False

    def submit(self, job: Job) -> None:
        """Take a batch; what may be written is written before this returns."""
        for exchange, slots in _by_exchange(job).items():
            outlet = self._outlet(exchange)
            outlet.submit(slots)
            self._ready[outlet] = None
        self.pump()

    def pump(self) -> None:
        """Write as long as something may be written and the transport takes it; exchanges take turns."""
        while self._ready and self._pipe.writable and not self.blocked:
            outlet = next(iter(self._ready))
            del self._ready[outlet]
            if not outlet.eager:
                continue
            if outlet.step():
                self._ready[outlet] = None
            else:
                self._starved[outlet] = None

    def silent(self) -> dict[str, float]:
        """Seconds since the oldest write without a confirm, of each exchange that has one."""
        now = self._clock()
        waits = ((exchange, outlet.silent_for(now)) for exchange, outlet in self._outlets.items())
        return {exchange: seconds for exchange, seconds in waits if seconds is not None}

    def in_flight(self) -> dict[str, int]:
        """Messages handed over and not decided, by exchange."""
        return {exchange: outlet.held for exchange, outlet in self._outlets.items() if outlet.held}

    @property
    def channels(self) -> int:
        """Channels that are open, or were asked for."""
        return len(self._pipe.ears)

    def open(self, ear: wire.Ear) -> int | None:
        """Take a channel number for an outlet, after an idle outlet has let go of its channel if too many are open."""
        if len(self._pipe.ears) >= self._cap:
            self._close_an_idle_channel()
        if len(self._pipe.ears) >= self._channel_max:
            return None
        number = self._last_channel
        while (number := number % self._channel_max + 1) in self._pipe.ears:
            pass
        self._last_channel = number
        self._pipe.ears[number] = ear
        return number

    def write(self, data: bytes) -> None:
        """Hand whole frames to the socket."""
        self._pipe.write(data)

    def closed(self, channel: int) -> None:
        """Answer the broker's `channel.close` before anything else is written; then the number may be used again."""
        self._pipe.write(wire.close_channel_ok(channel))
        self.free(channel)

    def free(self, channel: int) -> None:
        """A channel number may be used again, first by an outlet that waited for one."""
        self._pipe.ears.pop(channel, None)
        self._ready.update(self._starved)
        self._starved.clear()

    def changed(self, outlet: Outlet) -> None:
        """Something was answered: write what that allows, or make room for an outlet without a channel."""
        if outlet.eager:
            self._ready[outlet] = None
        elif self._starved and outlet.idle:
            self._close(outlet)
        if self._ready:
            self.pump()

    def _outlet(self, exchange: str) -> Outlet:
        outlet = self._outlets.get(exchange)
        if outlet is None:
            self._forget_an_idle_outlet()
            outlet = Outlet(exchange, line=self, encoder=self._encoder, clock=self._clock, emit=self._emit)
            self._outlets[exchange] = outlet
        else:
            self._outlets.move_to_end(exchange)
        return outlet

    def _forget_an_idle_outlet(self) -> None:
        if len(self._outlets) < self._cap * OUTLETS_PER_CHANNEL:
            return
        for exchange, outlet in self._outlets.items():
            if outlet.idle:
                self._close(outlet)
                del self._outlets[exchange]
                return

    def _close_an_idle_channel(self) -> None:
        """Of the outlet that was used longest ago."""
        for outlet in self._outlets.values():
            if outlet.channel is not None and outlet.idle:
                self._close(outlet)
                return

    def _close(self, outlet: Outlet) -> None:
        channel = outlet.rest()
        if channel is not None:
            self._pipe.ears[channel] = _Leaving(self, channel)
            self._pipe.write(wire.close_channel(channel))


def _by_exchange(job: Job) -> dict[str, list[Slot]]:
    """The messages of a batch, which mostly goes to one exchange."""
    groups: dict[str, list[Slot]] = {exchange: [] for exchange in job.batch.exchanges}
    if len(groups) == 1:
        return {exchange: [(job, index) for index in range(len(job.claims))] for exchange in groups}
    for index, claim in enumerate(job.claims):
        groups[claim.exchange].append((job, index))
    return groups


class _Leaving:
    """Ear of a channel that the relay closes; nothing was in flight on it."""

    def __init__(self, session: Session, channel: int) -> None:
        self._session = session
        self._channel = channel

    def acked(self, tag: int, *, multiple: bool) -> None:
        """Nothing was open."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """Nothing was open."""

    def returned(self, relay_id: str, reason: Return) -> None:
        """Nothing was open."""

    def replied(self, method: tuple[int, int]) -> None:
        """Free the number when the broker has closed the channel too."""
        if method == wire.CHANNEL_CLOSE_OK:
            self._session.free(self._channel)
            self._session.pump()

    def closed(self, reason: Return) -> None:  # noqa: ARG002 - the name is the protocol's
        """Both sides closed at once: answer, and wait for the answer."""
        self._session.write(wire.close_channel_ok(self._channel))
