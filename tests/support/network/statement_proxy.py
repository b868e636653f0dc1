"""A proxy before PostgreSQL that hears which statements pass, at the moment they pass: no counter that a server writes when it likes."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from relay.queries.statements import Statements
from tests.support.network.proxy import Proxy

_LENGTH = struct.Struct(">I")
_UNKEYED = (80877103, 80877104)
"""Codes of SSLRequest and GSSENCRequest, which come before the startup message and look like it."""


class Heard(NamedTuple):
    """One statement."""

    text: str
    at: float
    """By the monotonic clock."""


class Tap(Proxy):
    """A proxy that keeps every statement that clients have asked to be run."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.statements: list[Heard] = []

    def of(self, name: str) -> list[Heard]:
        """Those that are `relay/queries/<name>.sql`, known by its first line."""
        first = Statements("public")[name].decode().partition("\n")[0]
        return [heard for heard in self.statements if heard.text.startswith(first)]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        if gate is self._there:
            await super()._pass_on(_Overheard(reader, self.statements), writer, gate)
        else:
            await super()._pass_on(reader, writer, gate)


class _Overheard(asyncio.StreamReader):
    """What a client sends, and on its way here the statements in it (PostgreSQL, "Frontend/Backend Protocol", "Message Formats")."""

    def __init__(self, reader: asyncio.StreamReader, statements: list[Heard]) -> None:
        super().__init__()
        self._reader = reader
        self._statements = statements
        self._prepared: dict[bytes, bytes] = {}
        self._bytes = b""
        self._started = False

    async def read(self, n: int = -1) -> bytes:
        data = await self._reader.read(n)
        self._bytes += data
        for kind, body in self._messages():
            self._take(kind, body)
        return data

    def _messages(self) -> Iterator[tuple[bytes, bytes]]:
        """Whole messages so far; those up to the startup message have no kind."""
        while len(self._bytes) >= 5:
            start = int(self._started)
            (length,) = _LENGTH.unpack_from(self._bytes, start)
            if len(self._bytes) < start + length:
                return
            kind, body = self._bytes[:start], self._bytes[start + 4 : start + length]
            self._bytes = self._bytes[start + length :]
            self._started = self._started or _LENGTH.unpack_from(body)[0] not in _UNKEYED
            yield kind, body

    def _take(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[name] = text
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self._keep(self._prepared[name])
            case b"Q":
                self._keep(body.rstrip(b"\0"))

    def _keep(self, text: bytes) -> None:
        self._statements.append(Heard(text.decode(), time.monotonic()))
