"""A bare AMQP 0-9-1 client for tests: sends bytes as they are and shows every frame that comes back.

Client libraries check names more narrowly than the broker does, and hide channel errors behind exceptions of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pamqp import body, commands, frame, header

CHANNEL = 1
FRAME_MAX = 131_072


class Delivery(NamedTuple):
    """A message as the broker hands it to a consumer."""

    properties: commands.Basic.Properties
    body: bytes

    @property
    def relay_id(self) -> str:
        """The message's id, which the relay always sends along."""
        return str((self.properties.headers or {}).get("x-relay-id"))

    def seen(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        """Return, of what a consumer sees, the properties that are expected; `headers` are those of the app."""
        names = [name for name in expected if not name.startswith("body")]
        shown = {name: getattr(self.properties, "message_type" if name == "type" else name, None) for name in names}
        if "timestamp" in shown:
            shown["timestamp"] = int(self.properties.timestamp.timestamp()) if self.properties.timestamp else None
        if "headers" in shown:
            shown["headers"] = {name: value for name, value in (self.properties.headers or {}).items() if name != "x-relay-id"}
        return shown


class RawClient:
    """One connection with one channel in confirm mode.

    Args:
        url: broker, login and vhost.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5672
        self.user, self._password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._vhost = unquote(parts.path[1:]) or "/"
        self._made: list[bytes] = []

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self.write(b"AMQP\x00\x00\x09\x01")
        await self._expect(commands.Connection.Start)
        await self._send(commands.Connection.StartOk({}, "PLAIN", f"\0{self.user}\0{self._password}", "en_US"), channel=0)
        tune = await self._expect(commands.Connection.Tune)
        await self._send(commands.Connection.TuneOk(tune.channel_max, FRAME_MAX, 0), channel=0)
        await self._send(commands.Connection.Open(self._vhost), channel=0)
        await self._expect(commands.Connection.OpenOk)
        await self.open_channel()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            for delete in self._made:
                self.write(delete)
                await self._expect(commands.Exchange.DeleteOk)
        finally:
            self._writer.close()
            await self._writer.wait_closed()

    async def open_channel(self) -> None:
        """Open the channel, or open it again after the broker closed it."""
        await self._send(commands.Channel.Open())
        await self._expect(commands.Channel.OpenOk)
        await self._send(commands.Confirm.Select())
        await self._expect(commands.Confirm.SelectOk)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def declare_exchange(self, name: str, *, internal: bool = False) -> None:
        """Declare a direct exchange of any name of up to 255 bytes; it is deleted in the end."""
        self.write(_method(b"\x00\x28\x00\x0a\x00\x00" + _short(name) + _short("direct") + bytes((8 * internal,)) + bytes(4)))
        await self._expect(commands.Exchange.DeclareOk)
        self._made.append(_method(b"\x00\x28\x00\x14\x00\x00" + _short(name) + b"\x00"))

    async def consume(self, exchange: str, routing_key: str) -> str:
        """Declare a queue of this connection's own, bind it, and consume from it; return its name."""
        await self._send(commands.Queue.Declare(queue="", exclusive=True))
        queue: str = (await self._expect(commands.Queue.DeclareOk)).queue
        if exchange:
            self.write(_method(b"\x00\x32\x00\x14\x00\x00" + _short(queue) + _short(exchange) + _short(routing_key) + bytes(5)))
            await self._expect(commands.Queue.BindOk)
        await self._send(commands.Basic.Consume(queue=queue, no_ack=True))
        await self._expect(commands.Basic.ConsumeOk)
        return queue

    async def settled(self, count: int = 1) -> tuple[list[Any], list[Delivery]]:
        """Read until as many confirms as given, with as many deliveries, or one channel or connection error has come.

        Returns the methods about publishing (returns, acks, nacks, closes) in their order, and the deliveries.
        """
        said: list[Any] = []
        deliveries: list[Delivery] = []
        returned = confirmed = 0
        while confirmed < count or len(deliveries) + returned < count:
            method = await self._read()
            if isinstance(method, commands.Basic.Deliver):
                deliveries.append(await self._content())
                continue
            said.append(method)
            if isinstance(method, commands.Connection.Close):
                break
            if isinstance(method, commands.Channel.Close):
                await self._send(commands.Channel.CloseOk())
                break
            if isinstance(method, commands.Basic.Return):
                await self._content()
                returned += 1
            else:
                confirmed = method.delivery_tag if method.multiple else confirmed + 1
        return said, deliveries

    async def deliveries(self, count: int) -> list[Delivery]:
        """Read deliveries alone, as they come."""
        came: list[Delivery] = []
        while len(came) < count:
            await self._expect(commands.Basic.Deliver)
            came.append(await self._content())
        return came

    async def _content(self) -> Delivery:
        head = await self._read()
        assert isinstance(head, header.ContentHeader)
        assert isinstance(head.properties, commands.Basic.Properties)
        parts: list[bytes] = []
        while sum(map(len, parts)) < head.body_size:
            part = await self._read()
            assert isinstance(part, body.ContentBody)
            parts.append(part.value)
        return Delivery(head.properties, b"".join(parts))

    async def _send(self, method: Any, channel: int = CHANNEL) -> None:
        self.write(frame.marshal(method, channel))
        await self._writer.drain()

    async def _expect(self, kind: type[Any]) -> Any:
        method = await self._read()
        assert isinstance(method, kind), f"{kind.__name__} expected, {method.name} came: {dict(method)}"
        return method

    async def _read(self) -> Any:
        start = await asyncio.wait_for(self._reader.readexactly(7), 60)
        rest = await self._reader.readexactly(int.from_bytes(start[3:7], "big") + 1)
        return frame.unmarshal(start + rest)[2]


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _method(payload: bytes) -> bytes:
    return b"\x01" + CHANNEL.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def raw_publish(exchange: bytes, routing_key: bytes, properties: bytes, payload: bytes) -> bytes:
    """The frames of a message, its names as they are given and its properties as flags and fields."""
    names = b"".join(bytes((len(name),)) + name for name in (exchange, routing_key))
    head = b"\x00\x3c\x00\x00" + len(payload).to_bytes(8, "big") + properties
    return _method(b"\x00\x3c\x00\x28\x00\x00" + names + b"\x00") + _frame(2, head) + _frame(3, payload)


def _frame(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + CHANNEL.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"
