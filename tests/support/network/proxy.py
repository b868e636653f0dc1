"""A TCP proxy in front of a real server, so that the network between them can be made to fail."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST."""


class Proxy:
    """Listens on a free loopback port and passes bytes on, until a test changes that.

    Args:
        host: of the server behind.
        port: of the server behind.

    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._there = asyncio.Event()
        self._back = asyncio.Event()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.delay = 0.0
        """Seconds by which each piece is late, in both directions."""
        self.jitter = 0.0
        """Seconds by which a piece may be later still, as chance has it."""
        self.rate = 0
        """Bytes a second in each direction of a connection, 0 for no limit."""
        self.slice = 0
        """Bytes of the largest piece, each of a random length, 0 to pass on what comes."""
        self.chance = random.Random()
        self.accepted: list[float] = []
        """When each connection was accepted, in monotonic seconds."""
        self.port = 0
        self.heal()

    @classmethod
    def before(cls, url: str) -> Self:
        """Make a proxy for the server of a URL with host and port."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    @property
    def connections(self) -> int:
        """Connections that were ever accepted."""
        return len(self.accepted)

    def url(self, url: str) -> str:
        """Return the URL that leads through this proxy."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}"))

    def black_hole(self) -> None:
        """Pass nothing on in either direction, and keep every connection open."""
        self._there.clear()
        self._back.clear()

    def hold_answers(self) -> None:
        """Pass requests on and keep the answers back."""
        self._back.clear()

    def hold_requests(self) -> None:
        """Keep requests back and pass answers on."""
        self._there.clear()

    def heal(self) -> None:
        """Pass everything on, also what was kept back."""
        self._there.set()
        self._back.set()

    def close(self) -> None:
        """End every connection with FIN, towards both sides, behind what was passed on."""
        for pair in list(self._pairs):
            for writer in pair:
                writer.close()

    def reset(self) -> None:
        """Break every connection with RST, towards both sides."""
        for pair in list(self._pairs):
            for writer in pair:
                # One side may have ended already.
                with suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()

    def say(self, data: bytes) -> None:
        """Say something to every client in the server's name."""
        for client, _ in self._pairs:
            client.write(data)

    async def stop_listening(self) -> None:
        """Refuse new connections; existing ones continue."""
        self._server.close()

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(time.monotonic())
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, far_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pass_on(reader, far_writer, self._there), self._pass_on(far_reader, writer, self._back))
        except (OSError, RuntimeError):
            pass  # one side is gone, and so is the connection; uvloop says so with a RuntimeError
        finally:
            self._pairs.discard(pair)
            for end in pair:
                end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        while data := await reader.read(65536):
            for piece in self._pieces(data):
                await asyncio.sleep(self._lateness(len(piece)))  # also of 0, so that slices travel apart
                await gate.wait()
                writer.write(piece)
                await writer.drain()
        await gate.wait()
        if writer.can_write_eof():
            writer.write_eof()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while data:
            length = self.chance.randint(1, self.slice) if self.slice else self.rate // 10 or len(data)
            yield data[:length]
            data = data[length:]

    def _lateness(self, length: int) -> float:
        late = self.delay + self.chance.uniform(0, self.jitter)
        return late + length / self.rate if self.rate else late
