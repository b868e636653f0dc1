"""A proxy that loses the broker's confirms while `loses` is set, and passes on everything else that the broker says."""

from __future__ import annotations

import asyncio

from tests.support.network.proxy import Proxy

_HEAD = 7
"""Bytes of a frame before its payload: type, channel, size; one more ends it."""
_CONFIRMS = (b"\x01\x00\x3c\x00\x50", b"\x01\x00\x3c\x00\x78")
"""Type of a method frame, and basic.ack or basic.nack."""
_CLOSE = b"\x01\x00\x14\x00\x28"
"""Likewise of a channel.close."""


class ConfirmsLost(Proxy):
    """A proxy in front of RabbitMQ."""

    loses = False
    """Confirms are dropped from now on."""
    closed = 0
    """Channels that the broker has closed, whether that was passed on yet or not."""

    def hears(self, method: bytes) -> bool:
        """Whether a frame of the broker's is passed on."""
        self.closed += method == _CLOSE
        return not (self.loses and method in _CONFIRMS)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        await super()._pass_on(_Sifted(reader, self) if gate is self._back else reader, writer, gate)


class _Sifted(asyncio.StreamReader):
    """What a broker says, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, proxy: ConfirmsLost) -> None:
        super().__init__()
        self._reader = reader
        self._proxy = proxy
        self._pending = b""

    async def read(self, n: int = -1) -> bytes:
        while data := await self._reader.read(n):
            self._pending += data
            if passed := b"".join(frame for frame in iter(self._frame, b"") if self._proxy.hears(frame[:1] + frame[_HEAD : _HEAD + 4])):
                return passed
        return b""

    def _frame(self) -> bytes:
        """The next frame, nothing where it has not come whole."""
        end = _HEAD + int.from_bytes(self._pending[3:_HEAD], "big") + 1
        if len(self._pending) < end:
            return b""
        frame, self._pending = self._pending[:end], self._pending[end:]
        return frame
