"""The least that speaks AMQP 0-9-1: one connection with one channel, frames out as they are, confirms and deliveries counted.

Independent of the relay's own connection, which is what is measured.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast
from urllib.parse import unquote, urlsplit

from pamqp import commands
from pamqp.frame import marshal

_ACK, _NACK, _RETURN, _DELIVER = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78", b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x3c"
_CHANNEL_CLOSE, _CONNECTION_CLOSE = b"\x00\x14\x00\x28", b"\x00\x0a\x00\x32"
_HEAD = struct.Struct(">BHI").unpack_from
_CONFIRM = struct.Struct(">QB").unpack_from
_METHOD, _BODY = 1, 3
CHANNEL = 1


class Channel(asyncio.Protocol):
    """One channel with confirms; count what the broker has confirmed, and hand over what it delivers."""

    def __init__(self, on_body: Callable[[bytes], None] | None = None) -> None:
        self.confirmed = 0
        """Messages of which the confirm has come."""
        self.failure = ""
        self._on_body = on_body
        self._rest = b""
        self._low = 0
        self._singles: set[int] = set()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._news: asyncio.Future[None] | None = None

    async def call(self, frames: bytes) -> bytes:
        """Write and wait for a method that is neither a confirm nor a delivery.

        Raises:
            RuntimeError: a message was refused or returned, or the connection is lost.
        """
        self._check()
        self._answer = asyncio.get_running_loop().create_future()
        self.write(frames)
        answer = await self._answer
        self._check()
        return answer

    def write(self, frames: bytes) -> None:
        """Write frames as they are."""
        assert self._transport is not None
        self._transport.write(frames)

    async def news(self) -> None:
        """Wait until something has come.

        Raises:
            RuntimeError: a message was refused or returned, or the connection is lost.
        """
        if not self.failure:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        self._check()

    def close(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake who waits."""
        self.failure = self.failure or f"The broker hung up ({exc})."
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Cut into frames."""
        buffer = self._rest + data if self._rest else data
        at, end = 0, len(buffer)
        while end - at >= 8:
            kind, _, size = _HEAD(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            if kind == _METHOD:
                self._method(buffer, at + 7, stop - 1)
            elif kind == _BODY and self._on_body:
                self._on_body(buffer[at + 7 : stop - 1])
            at = stop
        self._rest = buffer[at:]
        self._wake()

    def _check(self) -> None:
        if self.failure:
            raise RuntimeError(self.failure)

    def _method(self, buffer: bytes, at: int, stop: int) -> None:
        name = buffer[at : at + 4]
        if name == _ACK:
            self._acked(*_CONFIRM(buffer, at + 4))
        elif name in {_NACK, _RETURN, _CHANNEL_CLOSE, _CONNECTION_CLOSE}:
            self.failure = f"The broker answered {buffer[at:stop]!r}."
        elif name != _DELIVER and self._answer and not self._answer.done():
            self._answer.set_result(buffer[at:stop])

    def _acked(self, tag: int, multiple: int) -> None:
        if multiple & 1:
            self._low = max(self._low, tag)
            self._singles = {one for one in self._singles if one > tag}
        else:
            self._singles.add(tag)
        while self._low + 1 in self._singles:
            self._low += 1
            self._singles.discard(self._low)
        self.confirmed = self._low + len(self._singles)

    def _wake(self) -> None:
        for future in (self._news, self._answer if self.failure else None):
            if future is not None and not future.done():
                future.set_result(None)  # type: ignore[arg-type]


async def connect(url: str, on_body: Callable[[bytes], None] | None = None) -> Channel:
    """Log in, open a channel and ask for confirms."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: Channel(on_body), parts.hostname or "localhost", parts.port or 5672)
    login = f"\0{unquote(parts.username or 'guest')}\0{unquote(parts.password or 'guest')}"
    await channel.call(b"AMQP\x00\x00\x09\x01")
    await channel.call(marshal(commands.Connection.StartOk({}, "PLAIN", login, "en_US"), 0))
    channel.write(marshal(commands.Connection.TuneOk(2047, 131_072, 0), 0))
    await channel.call(marshal(commands.Connection.Open(unquote(parts.path[1:]) or "/"), 0))
    await channel.call(marshal(commands.Channel.Open(), CHANNEL))
    await channel.call(marshal(commands.Confirm.Select(), CHANNEL))
    return channel
