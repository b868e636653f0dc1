"""A channel pool on a pipe instead of a connection: what it writes can be read, and what a broker would say is said by the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from operator import itemgetter

from pamqp import commands
from pamqp.frame import unmarshal

from relay.amqp import frames
from relay.amqp.publishing.channel_allowance import ChannelAllowance
from relay.amqp.publishing.channel_pool import ChannelPool
from relay.amqp.publishing.publish_batch import PublishBatch
from relay.codec.encoder import Encoder
from relay.events import Event
from relay.message import Batch, Verdict
from tests.support.broker.publishing import batch, claim


class Pipe:
    """Takes what the pool writes, as methods by channel; what a broker would say is put into its handlers."""

    def __init__(self) -> None:
        self.handlers: dict[int, frames.ChannelHandler] = {}
        self.writable = True
        self._written = b""

    def write(self, data: bytes) -> None:
        """Take bytes."""
        self._written += data

    def methods(self) -> list[tuple[int, str]]:
        """Return the methods written since the last look, without class names where they are plain: (channel, name)."""
        found = []
        while self._written:
            size, channel, frame = unmarshal(self._written)
            self._written = self._written[size:]
            if isinstance(frame, commands.Basic.Publish):
                found.append((channel, f"publish {frame.exchange}"))
            elif hasattr(frame, "valid_responses"):
                found.append((channel, frame.name))
        return found


class Bench:
    """A channel pool on a pipe, with a clock that a test moves."""

    def __init__(self, *, channel_max: int = 100, open_channels: int = 100, counts_late: bool = False, blamed: Container[str] = ()) -> None:
        self.pipe = Pipe()
        self.ahead = 0.0
        self._began = time.monotonic()
        self.events: list[Event] = []
        self.late: list[Callable[[], None]] = []
        """What is to be done when the broker counts a closed channel no more, where it counts it for a moment."""
        self.wakes: list[tuple[float, Callable[[], None]]] = []
        """What is to be done, and when: seconds of `ahead`."""
        encoder = Encoder(frame_max=4096, max_body_bytes=1 << 20, allowed_exchanges=None)
        self.pool = ChannelPool(
            pipe=self.pipe,
            user="guest",
            encoder=encoder,
            channels=ChannelAllowance(channel_max, open_channels, self._wake, later=self.late.append if counts_late else None),
            clock=self.clock,
            emit=self.events.append,
            blamed=blamed,
        )

    def clock(self) -> float:
        """Return the time."""
        return self._began + self.ahead

    def elapse(self, seconds: float) -> None:
        """Let time pass; what is to be done meanwhile is done, each at its moment."""
        end = self.ahead + seconds
        while due := [wake for wake in self.wakes if wake[0] <= end]:
            self.wakes.remove(first := min(due, key=itemgetter(0)))
            self.ahead = first[0]
            first[1]()
        self.ahead = end

    def _wake(self, seconds: float, call: Callable[[], None]) -> None:
        self.wakes.append((self.ahead + seconds, call))

    def send(self, *exchanges: str, seconds: float = 60) -> PublishBatch:
        """Submit a batch with a message for each of these exchanges; its seconds count from the start of the test, whatever it took."""
        return self.submit(batch([claim(exchange) for exchange in exchanges], seconds=seconds, now=self._began))

    def submit(self, claimed: Batch) -> PublishBatch:
        """Submit a batch."""
        job = PublishBatch(claimed, self.clock)
        self.pool.submit(job)
        return job

    def prove(self, exchange: str = "x", channel: int = 1) -> None:
        """Send and confirm a first message."""
        self.send(exchange)
        self.pipe.handlers[channel].replied(frames.QOS_OK)
        self.pipe.handlers[channel].acked(1, multiple=False)
        self.pipe.methods()


def verdicts(job: PublishBatch) -> list[Verdict | None]:
    """Verdicts so far."""
    return [result.verdict if result else None for result in job.results]


def published(count: int, channel: int = 1, exchange: str = "x") -> list[tuple[int, str]]:
    """So many publishes, with the mark behind each 16 and the last."""
    found = []
    for start in range(0, count, 16):
        found += [(channel, f"publish {exchange}")] * min(16, count - start) + [(channel, "Basic.Qos")]
    return found


def opened(channel: int) -> list[tuple[int, str]]:
    """A channel with confirms."""
    return [(channel, "Channel.Open"), (channel, "Confirm.Select")]
