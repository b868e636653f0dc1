"""The in-memory broker on a loopback port: speaks AMQP 0-9-1 as RabbitMQ does."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

from pamqp import base, body, commands, frame, header, heartbeat
from pamqp.common import FieldTable

from relay.testing.fake_broker.channel import Channel, Faults
from relay.testing.fake_broker.topology import Topology

GREETING: Final = b"AMQP\x00\x00\x09\x01"
FRAME_MAX: Final = 131_072
CHANNEL_MAX: Final = 2047
HEARTBEAT: Final = 60
ALARM: Final = "low on memory, because the test says so"
_HEAD: Final = struct.Struct(">BHI").unpack_from
_FRAMING: Final = 8
_CONTENT: Final = (2, 3)


class BrokerPort:
    """The state shared by all connections, and the listening port."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.faults = Faults()
        self.down = False
        self.blocked = False
        self.port = 0
        self.connections: set[ServedConnection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port of this machine."""
        self._server = await asyncio.get_running_loop().create_server(lambda: ServedConnection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """End every connection and stop listening."""
        self.drop()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def drop(self) -> None:
        """Drop every connection without a close frame."""
        for connection in list(self.connections):
            connection.abort()

    def block(self, *, blocked: bool) -> None:
        """Raise or end a resource alarm. During an alarm publishing clients are notified, and their frames are not read."""
        self.blocked = blocked
        if not blocked:
            for connection in list(self.connections):
                connection.unblock()

    def hush(self, exchange: str, *, silent: bool) -> None:
        """Stop confirming messages of an exchange, or resume and confirm the messages that were not confirmed."""
        if silent:
            self.faults.silent.add(exchange)
            return
        self.faults.silent.discard(exchange)
        for connection in self.connections:
            for channel in connection.channels.values():
                channel.heard(exchange)


class ServedConnection(asyncio.Protocol):
    """One client's connection: splits its bytes into frames and passes them to channels."""

    def __init__(self, broker: BrokerPort) -> None:
        self.channels: dict[int, Channel] = {}
        self._broker = broker
        self._user = "guest"
        self._buffer = b""
        self._greeted = False
        self._told_blocked = False
        self._transport: asyncio.Transport | None = None
        self._beat: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a client, unless the broker is down."""
        self._transport = cast("asyncio.Transport", transport)
        if self._broker.down:
            self._transport.abort()
        self._broker.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Forget the client and its channels."""
        self._broker.connections.discard(self)
        self.channels.clear()
        if self._beat is not None:
            self._beat.cancel()

    def data_received(self, data: bytes) -> None:
        """Read complete frames; during an alarm, content frames wait."""
        self._buffer += data
        if not self._greeted:
            if len(self._buffer) < len(GREETING):
                return
            if not self._buffer.startswith(GREETING):
                self.abort()
                return
            self._greeted, self._buffer = True, self._buffer[len(GREETING) :]
            self._say(0, commands.Connection.Start(server_properties=_introduction(), mechanisms="PLAIN"))
        self._read()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def unblock(self) -> None:
        """End the alarm for this client: notify it, and read the frames that arrived meanwhile."""
        if self._told_blocked:
            self._told_blocked = False
            self._say(0, commands.Connection.Unblocked())
            self._read()

    def _read(self) -> None:
        at = 0
        while len(self._buffer) - at >= _FRAMING:
            kind, number, size = _HEAD(self._buffer, at)
            stop = at + _FRAMING + size
            if stop > len(self._buffer) or (number and self._is_held(kind)):
                break
            self._frame(number, self._buffer[at:stop])
            at = stop
        self._buffer = self._buffer[at:]

    def _is_held(self, kind: int) -> bool:
        """Whether a frame must wait for the end of an alarm. The first message that waits also notifies the client."""
        if self._broker.blocked and kind in _CONTENT and not self._told_blocked:
            self._told_blocked = True
            self._say(0, commands.Connection.Blocked(ALARM))
        return self._told_blocked

    def _frame(self, number: int, raw: bytes) -> None:
        _, _, part = frame.unmarshal(raw)
        if number == 0:
            if isinstance(part, base.Frame):
                self._connection_method(part)
        elif isinstance(part, base.Frame):
            self._channel_method(number, part)
        elif (channel := self.channels.get(number)) is not None and not channel.dying:
            if isinstance(part, header.ContentHeader):
                channel.content(part, raw)
            elif isinstance(part, body.ContentBody):
                channel.content(part.value or b"", raw)

    def _connection_method(self, method: base.Frame) -> None:
        if isinstance(method, commands.Connection.StartOk):
            self._user = (method.response or "\0guest\0").split("\0")[1]
            self._say(0, commands.Connection.Tune(CHANNEL_MAX, FRAME_MAX, HEARTBEAT))
        elif isinstance(method, commands.Connection.TuneOk) and method.heartbeat:
            self._beat_in(method.heartbeat / 2)
        elif isinstance(method, commands.Connection.Open):
            self._say(0, commands.Connection.OpenOk())
        elif isinstance(method, commands.Connection.Close):
            self._say(0, commands.Connection.CloseOk())
            if self._transport is not None:
                self._transport.close()

    def _channel_method(self, number: int, method: base.Frame) -> None:
        channel = self.channels.get(number)
        if isinstance(method, commands.Channel.Open):
            self.channels[number] = self._channel(number)
            self._say(number, commands.Channel.OpenOk())
        elif channel is None:
            return
        elif isinstance(method, commands.Channel.Close | commands.Channel.CloseOk):
            del self.channels[number]
            if isinstance(method, commands.Channel.Close):
                self._say(number, commands.Channel.CloseOk())
        elif not channel.dying:
            channel.method(method)

    def _channel(self, number: int) -> Channel:
        return Channel(
            number,
            user=self._user,
            topology=self._broker.topology,
            faults=self._broker.faults,
            answer=lambda method: self._say(number, method),
            give_back=lambda raw: self._write(b"".join(raw)),
        )

    def _beat_in(self, seconds: float) -> None:
        self._beat = asyncio.get_running_loop().call_later(seconds, self._keep_alive, seconds)

    def _keep_alive(self, every: float) -> None:
        self._write(heartbeat.Heartbeat().marshal())
        self._beat_in(every)

    def _say(self, number: int, method: base.Frame) -> None:
        self._write(frame.marshal(method, number))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _introduction() -> FieldTable:
    return {
        "product": "RabbitMQ in memory",
        "version": "testing",
        "capabilities": {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True, "exchange_exchange_bindings": True},
    }
