"""A broker in memory: it reads the frames that the relay writes, and answers late, in other orders, or never."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, Protocol

from relay.amqp import frames
from relay.amqp.connection import ConnectionLost
from relay.amqp.frames import FrameParser, ReplyReason
from relay.errors import BrokerError
from tests.simulation.clock import PROCESS, Process, SimulatedLoop
from tests.simulation.connection import Channel, Connection, acked, nacked, replied, returned, spoken

NOWHERE = "nowhere"
"""A routing key that no queue is bound by."""
DEADLY = "deadly"
"""One whose messages end the relay that sends them."""
_HEAD = struct.Struct(">BHI").unpack_from
_IDS = struct.Struct(">HH").unpack_from
_PUBLISH, _QOS, _OPEN, _CLOSE, _CLOSE_OK = (60, 40), (60, 10), (20, 10), (20, 40), (20, 41)


class Consumer(Protocol):
    """Hears what reaches a queue, and what the relay may not know."""

    def written(self, id_: str, process: Process | None, at: float) -> None:
        """A process had written it at a moment of the loop's time."""

    def delivered(self, id_: str) -> None:
        """A queue took the message."""

    def acknowledged(self, id_: str) -> None:
        """The broker has sent an ack for it."""

    def unheard(self, id_: str) -> None:
        """A queue has it, and the relay will never hear so."""


class FakeBroker:
    """Exchanges, each with one queue, and connections."""

    def __init__(self, loop: SimulatedLoop, chance: Random, consumer: Consumer, trace: Callable[..., None]) -> None:
        self.loop = loop
        self.chance = chance
        self.context = Context()
        self.trace = trace
        self._consumer = consumer
        self.state: dict[str, str] = {}
        """Exchanges that are missing, forbidden, full (their queue nacks) or silent (their queue does not confirm)."""
        self.connections: dict[str, Connection] = {}
        self.away = False
        self.bound = False
        """Some queue takes whatever routing key."""
        self.harmless = False
        """Deadly messages no longer kill a relay."""
        self.blocked = False
        self._written_at = 0.0
        self.slow = 0.0
        """Seconds by which confirms are late at the most."""
        self.late = 0.0
        """Seconds by which each of them is late at the least."""

    async def connect(self, url: str, *, name: str, heartbeat: int, cut: type[FrameParser] = FrameParser) -> Any:
        """Stand for `relay.amqp.connection.connect`.

        Raises:
            BrokerError: the broker is away.
        """
        del heartbeat, cut
        await asyncio.sleep(0.002)
        if self.away:
            raise BrokerError("The broker is not reachable.")
        made = self.connections[url] = Connection(self, name, PROCESS.get().context)  # type: ignore[union-attr]
        if self.blocked:
            made.tell(partial(spoken, made, "blocked"))
        return made

    def drop(self, url: str) -> None:
        """Cut a connection: the broker reads a part of what is under way, and the relay does not hear of it."""
        connection = self.connections.get(url)
        if connection is None or connection.closed:
            return
        for _ in range(self.chance.randrange(len(connection.arriving) + 1)):
            self.read(connection)
        self.gone(connection)
        self.loop.call_soon(connection.end, ConnectionLost("The connection to the broker is lost."), context=connection.context)

    def gone(self, connection: Connection) -> None:
        """The end of a connection: what its relay has not heard of is in doubt."""
        if not connection.closed:
            connection.closed = True
            connection.arriving.clear()
            for channel in connection.channels.values():
                self._forget(channel)

    def block(self, blocked: bool) -> None:
        """Raise a resource alarm, or end it."""
        self.blocked = blocked
        for connection in self.connections.values():
            word = "blocked" if blocked else "unblocked"
            connection.tell(partial(spoken, connection, word))
            for _ in range(0 if blocked else len(connection.arriving)):
                self.read(connection)

    def become(self, exchange: str, state: str) -> None:
        """Change an exchange; what a queue held back is confirmed when it is silent no more."""
        self.state[exchange] = state
        for connection in self.connections.values():
            for channel in list(connection.channels.values()):
                if channel.publish[0] == exchange and state != "silent":
                    channel.due = [tag for tag in channel.open if tag not in channel.told]
                    self._confirm(connection, channel)

    def read(self, connection: Connection) -> None:
        """Read what one write brought."""
        if connection.closed or self.blocked or not connection.arriving:
            return
        (data, self._written_at), at = connection.arriving.pop(0), 0
        while at < len(data):
            kind, number, size = _HEAD(data, at)
            self._frame(connection, number, kind, data[at + 7 : at + 7 + size])
            at += size + 8

    def _frame(self, connection: Connection, number: int, kind: int, payload: bytes) -> None:
        method = _IDS(payload, 0) if kind == 1 else None
        if method == _OPEN:
            connection.channels[number] = Channel(number)
        channel = connection.channels.get(number)
        if channel is None:
            return
        if method in {_CLOSE, _CLOSE_OK}:
            del connection.channels[number]
            if method == _CLOSE and not channel.dying:
                connection.tell(partial(replied, connection, number, frames.CHANNEL_CLOSE_OK))
        elif channel.dying:
            return
        elif method == _PUBLISH:
            exchange, at = _short(payload, 6)
            channel.publish = (exchange, _short(payload, at)[0])
        elif method == _QOS:
            connection.tell(partial(replied, connection, number, frames.QOS_OK))
        elif kind == 2:
            self._published(connection, channel, frames.relay_id_of(payload))

    def _published(self, connection: Connection, channel: Channel, id_: str) -> None:
        exchange, routing_key = channel.publish
        channel.tag += 1
        tag, state = channel.tag, self.state.get(exchange, "well")
        self.trace("published", connection.name, exchange, id_, state)
        self._consumer.written(id_, connection.process, self._written_at)
        if routing_key == DEADLY and connection.process and not self.harmless:
            connection.process.doomed = True
            self.gone(connection)
            return
        if state in {"missing", "forbidden"}:
            self._close(connection, channel, exchange, state)
        elif routing_key == NOWHERE and not self.bound:
            connection.tell(partial(returned, connection, channel.number, id_))
            self._take(connection, channel, "")
        elif state == "full":
            connection.tell(partial(nacked, connection, channel.number, tag))
        else:
            self._consumer.delivered(id_)
            self._take(connection, channel, id_, silent=state == "silent")

    def _take(self, connection: Connection, channel: Channel, id_: str, *, silent: bool = False) -> None:
        channel.open[channel.tag] = id_
        if silent:
            return
        if self.late:
            self.loop.world_later(self.late, self._fall_due, connection, channel, channel.tag)
        else:
            self._fall_due(connection, channel, channel.tag)

    def _fall_due(self, connection: Connection, channel: Channel, tag: int) -> None:
        if tag in channel.open and tag not in channel.told:
            channel.due.append(tag)
            self.loop.world_later(self.chance.random() * (0.003 + self.slow), self._confirm, connection, channel)

    def _close(self, connection: Connection, channel: Channel, exchange: str, state: str) -> None:
        words = {
            "missing": ReplyReason(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"),
            "forbidden": ReplyReason(403, f"ACCESS_REFUSED - access to exchange '{exchange}' in vhost '/' refused for user 'u'"),
        }
        channel.dying = True
        connection.tell(partial(self._closed, connection, channel, words[state]))

    def _closed(self, connection: Connection, channel: Channel, reason: ReplyReason) -> None:
        self._forget(channel)
        if (handler := connection.handlers.get(channel.number)) is not None:
            handler.closed(reason)

    def _forget(self, channel: Channel) -> None:
        for id_ in filter(None, channel.open.values()):
            self._consumer.unheard(id_)
        channel.open.clear()
        channel.due.clear()

    def _confirm(self, connection: Connection, channel: Channel) -> None:
        """Acknowledge what is due: all at once where that is the beginning of what is open, else one by one in any order."""
        due, channel.due = channel.due, []
        if connection.closed or channel.dying or not due:
            return
        for tag in due:
            channel.told[tag] = None
            if channel.open[tag]:
                self._consumer.acknowledged(channel.open[tag])
        if due == list(channel.open)[: len(due)]:
            connection.tell(partial(acked, connection, channel, due[-1], True))
            return
        self.chance.shuffle(due)
        for tag in due:
            connection.tell(partial(acked, connection, channel, tag, False))


def _short(payload: bytes, at: int) -> tuple[str, int]:
    stop = at + 1 + payload[at]
    return payload[at + 1 : stop].decode(), stop
