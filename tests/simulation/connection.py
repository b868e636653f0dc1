"""A connection as both sides see it, and what the relay hears on it: late, in order, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Protocol

from relay.amqp import frames
from relay.amqp.connection import ConnectionLost, ConnectionOwner
from relay.amqp.frames import ReplyReason
from tests.simulation.clock import PROCESS, SimulatedLoop


class Reader(Protocol):
    """The broker, as a connection sees it."""

    loop: SimulatedLoop
    chance: Random
    context: Context
    blocked: bool

    def read(self, connection: Connection) -> None:
        """Read what one write brought."""

    def gone(self, connection: Connection) -> None:
        """The connection has ended."""


class Channel:
    """The broker's end of a channel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tag = 0
        self.dying = False
        """Closed by the broker: everything but the answer to that is ignored."""
        self.publish = ("", "")
        self.open: dict[int, str] = {}
        """What the relay has not heard of, by tag: a message that a queue has, or nothing for one that was returned."""
        self.due: list[int] = []
        """Tags to be acknowledged."""
        self.told: dict[int, None] = {}
        """Tags of which an ack is under way."""


class Connection:
    """Both ends of a connection: what a relay's link and tap are to its session, and the broker's reader."""

    frame_max, channel_max = 131_072, 2047
    user = "guest"
    version, host, risk = "simulated", "memory", None

    def __init__(self, broker: Reader, name: str, context: Context) -> None:
        self._broker = broker
        self.context = context
        self.process = context[PROCESS]
        self.name = name
        self.handlers: dict[int, frames.ChannelHandler] = {}
        self.owner: ConnectionOwner | None = None
        self.ended: asyncio.Future[ConnectionLost] = broker.loop.create_future()
        self.channels: dict[int, Channel] = {}
        self.closed = False
        self.arriving: list[tuple[bytes, float]] = []
        """What was written and not read yet, and when."""
        self._heard_at = self._told_at = 0.0

    @property
    def tap(self) -> Connection:
        """The relay's end."""
        return self

    @property
    def writable(self) -> bool:
        """Open."""
        return not self.closed

    def write(self, data: bytes) -> None:
        """Take whole frames; they arrive later, in order."""
        if not self.closed and not (self.process and self.process.dead):
            self.arriving.append((data, self._broker.loop.now))
            self._heard_at = self._at(self._heard_at)
            self._broker.loop.call_at(self._heard_at, self._broker.read, self, context=self._broker.context)

    def end(self, lost: ConnectionLost) -> None:
        """Cut the connection, from either side."""
        if not self.ended.done():
            self.ended.set_result(lost)
        self._broker.gone(self)

    async def close(self) -> None:
        """Say goodbye: what was written is read before the end."""
        while self.arriving and not self.closed and not self._broker.blocked:  # noqa: ASYNC110 - a step of the loop, not a wait
            await asyncio.sleep(0.001)
        self.end(ConnectionLost("The relay closed the connection."))

    def tell(self, speak: Callable[[], None]) -> None:
        """Say something to the relay; it is heard later, in order, unless the connection ends before."""
        self._told_at = self._at(self._told_at)
        self._broker.loop.call_at(self._told_at, self._hear, speak, context=self.context)

    def _hear(self, speak: Callable[[], None]) -> None:
        if not self.closed:
            speak()

    def _at(self, last: float) -> float:
        return max(last + 1e-6, self._broker.loop.now + self._broker.chance.random() * 0.002)


def spoken(connection: Connection, word: str) -> None:
    """The broker speaks of the whole connection."""
    if connection.owner is None:
        return
    if word == "blocked":
        connection.owner.blocked("memory")
    else:
        connection.owner.unblocked()


def replied(connection: Connection, number: int, method: tuple[int, int]) -> None:
    """An answer that is no confirm."""
    if (handler := connection.handlers.get(number)) is not None:
        handler.replied(method)


def returned(connection: Connection, number: int, id_: str) -> None:
    """Unroutable."""
    if (handler := connection.handlers.get(number)) is not None:
        handler.returned(id_, ReplyReason(312, "NO_ROUTE"))


def nacked(connection: Connection, number: int, tag: int) -> None:
    """Refused."""
    if (handler := connection.handlers.get(number)) is not None:
        handler.nacked(tag, multiple=False)


def acked(connection: Connection, channel: Channel, tag: int, multiple: bool) -> None:
    """Confirmed: the relay knows now."""
    if channel.dying or (handler := connection.handlers.get(channel.number)) is None:
        return
    for heard in [heard for heard in channel.open if heard <= tag] if multiple else [tag]:
        channel.open.pop(heard, None)
        channel.told.pop(heard, None)
    handler.acked(tag, multiple=multiple)
