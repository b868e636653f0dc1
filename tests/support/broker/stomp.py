"""A bare STOMP subscriber for tests, with subscriptions whose messages it acknowledges and one whose messages it does not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import unquote

from tests.support.broker.mqtt import Message

VERSIONS: Final = ("1.0", "1.1", "1.2")
ACKS: Final = ("auto", "client")
ESCAPED: Final = {b"\\n": b"\n", b"\\r": b"\r", b"\\c": b":", b"\\\\": b"\\"}
Frame = tuple[str, dict[str, str], bytes]


@asynccontextmanager
async def subscribed_by_stomp(port: int, vhost: str, version: str) -> AsyncIterator[AsyncIterator[Message]]:
    """Messages of the vhost's topics, as they come, for each kind of acknowledgement; they begin with their frame's own headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(_frame("CONNECT", {"accept-version": version, "host": vhost, "login": "guest", "passcode": "guest"}))
        await _expect(reader, "CONNECTED")
        for ack in ACKS:
            writer.write(_frame("SUBSCRIBE", {"id": ack, "ack": ack, "destination": "/topic/#", "receipt": ack}))
            await _expect(reader, "RECEIPT")
        yield _messages(reader, writer, version)
    finally:
        writer.close()


async def _messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str) -> AsyncIterator[Message]:
    while True:
        headers, body = await _expect(reader, "MESSAGE")
        ack = headers["subscription"]
        if ack != "auto":
            of = {"id": headers["ack"]} if version == "1.2" else {"subscription": ack, "message-id": headers["message-id"]}
            writer.write(_frame("ACK", of))
        yield f"STOMP {ack}", unquote(headers["destination"].rpartition("/")[2]), body


async def _expect(reader: asyncio.StreamReader, command: str) -> tuple[dict[str, str], bytes]:
    came, headers, body = await _read(reader)
    if came != command:
        message = f"{command} expected, {came} came: {headers}, {body!r}"
        raise ValueError(message)
    return headers, body


async def _read(reader: asyncio.StreamReader) -> Frame:
    """Read one frame; if it repeats a header, the first one counts."""
    while (line := await reader.readuntil(b"\n")) == b"\n":
        pass
    command, headers = line.decode().strip(), dict[str, str]()
    while (line := await reader.readuntil(b"\n")) != b"\n":
        name, _, value = line[:-1].partition(b":")
        headers.setdefault(_plain(name), _plain(value))
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    rest = await reader.readuntil(b"\x00")
    if rest != b"\x00":
        message = f"{len(rest)} bytes after a body of {len(body)}"
        raise ValueError(message)
    return command, headers, body


def _plain(data: bytes) -> str:
    return re.sub(rb"\\[nrc\\]", lambda found: ESCAPED[found[0]], data).decode()


def _frame(command: str, headers: dict[str, str]) -> bytes:
    return "\n".join([command, *(f"{name}:{value}" for name, value in headers.items()), "\n\x00"]).encode()
