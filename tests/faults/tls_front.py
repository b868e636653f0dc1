"""A front that speaks TLS for a server that does not."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

from relay.devservers.rabbitmq import Certificates


class TlsFront:
    """Speaks TLS before a broker that does not, with a certificate that may change."""

    def __init__(self, port: int, shown: Certificates) -> None:
        self._target = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._writers: set[asyncio.StreamWriter] = set()
        self.show(shown)

    def show(self, shown: Certificates) -> None:
        """Show this certificate from the next connection on, and end those that stand."""
        self._context.load_cert_chain(shown.certificate, shown.key)
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ends = {writer, far_writer}
        self._writers |= ends
        with suppress(OSError, RuntimeError):
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        self._writers -= ends
        for end in ends:
            end.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()
