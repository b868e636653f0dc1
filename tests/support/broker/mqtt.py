"""A bare MQTT 3.1.1 subscriber for tests, at both qualities of service, that ends over a topic that strict clients refuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 0x10, 0x20, 3, 0x40, 0x82, 0x90
FILTERS: Final = b"\x00\x01#\x01" + b"\x00\x03+/#\x00"
"""Everything at quality of service 1, and everything that has a topic at 0: the broker has a queue for each, so all comes twice."""
TOPIC: Final = re.compile(r"[^#+\x00-\x1f\x7f-\x9f]+")
Message = tuple[str, str, bytes]
"""How it was subscribed, its routing key and its body."""


@asynccontextmanager
async def subscribed_by_mqtt(port: int, vhost: str, *, clean: bool) -> AsyncIterator[AsyncIterator[Message]]:
    """Messages of the vhost's topics, as they come; the session is clean, or one that outlives its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        flags = bytes((0xC2 if clean else 0xC0,))
        client = b"".join(map(_text, (vhost, f"{vhost}:guest", "guest")))
        writer.write(_packet(CONNECT, _text("MQTT") + b"\x04" + flags + b"\x00\x00" + client))
        await _expect(reader, CONNACK, b"\x00\x00")
        writer.write(_packet(SUBSCRIBE, b"\x00\x01" + FILTERS))
        await _expect(reader, SUBACK, b"\x00\x01\x01\x00")
        yield _messages(reader, writer)
    finally:
        writer.close()


async def _messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[Message]:
    while True:
        first, data = await _read(reader)
        if first >> 4 != PUBLISH:
            message = f"packet {first:#x}"
            raise ValueError(message)
        length = int.from_bytes(data[:2])
        topic, rest = data[2 : length + 2].decode(), data[length + 2 :]
        if not TOPIC.fullmatch(topic):
            message = f"topic {topic!r}"
            raise ValueError(message)
        quality = first >> 1 & 3
        if quality:
            writer.write(_packet(PUBACK, rest[:2]))
        yield "MQTT", topic.replace("/", "."), rest[2:] if quality else rest


async def _expect(reader: asyncio.StreamReader, kind: int, data: bytes) -> None:
    if (came := await _read(reader)) != (kind, data):
        message = f"packet {kind:#x} with {data!r} expected, {came} came"
        raise ValueError(message)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    [first] = await reader.readexactly(1)
    length = shift = 0
    more = True
    while more:
        [byte] = await reader.readexactly(1)
        length |= (byte & 127) << shift
        shift, more = shift + 7, byte > 127
    return first, await reader.readexactly(length)


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2) + text.encode()


def _packet(first: int, data: bytes) -> bytes:
    """A packet of at most 127 bytes."""
    return bytes((first, len(data))) + data
