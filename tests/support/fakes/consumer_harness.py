"""A source of deliveries whose connection is up, with a tap that notes what is written; no server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from relay import events
from relay.amqp.connection import BrokerConnection, ConnectionLost
from relay.amqp.consuming import deliveries
from relay.amqp.consuming.consumer_connection import ConsumerConnection

NAMES = {
    (20, 10): "open",
    (60, 10): "qos",
    (60, 20): "consume",
    (60, 30): "cancel",
    (60, 80): "ack",
    (20, 40): "close",
    (20, 41): "close-ok",
}
LIMIT = 100_000


class Socket:
    """A tap that notes what is written."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        self.written: list[tuple[str, int, int]] = []
        """Method, channel, and the number of a qos or an ack."""

    def write(self, data: bytes) -> None:
        """Note each frame."""
        while data:
            channel, size = int.from_bytes(data[1:3], "big"), int.from_bytes(data[3:7], "big")
            payload, data = data[7 : 7 + size], data[8 + size :]
            name = NAMES[int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")]
            number = {"qos": payload[8:10], "ack": payload[4:12]}.get(name, b"")
            alone = " one" if name == "ack" and not payload[12] else ""
            self.written.append((name + alone, channel, int.from_bytes(number, "big")))

    def flush(self) -> list[tuple[str, int, int]]:
        """What was written since."""
        written, self.written = self.written, []
        return written


class Rig:
    """A source whose connection is up."""

    def __init__(self, *queues: str, prefetch: int = 4, paused: bool = False, channel_max: int = 0) -> None:
        self.channel_max = channel_max
        self.events: list[events.Event] = []
        self.source = ConsumerConnection(
            urls=[], name="test", queues=queues, prefetch=prefetch, most_bytes=LIMIT * len(queues), max_body_bytes=lambda: LIMIT // 4,
            emit=self.events.append,
        )  # fmt: skip
        if paused:
            self.source.pause()
        self.up()

    def up(self) -> None:
        """Connect, again."""
        self.socket = Socket()
        self.source.up(cast("BrokerConnection", self))

    @property
    def tap(self) -> Socket:
        """As a link has it."""
        return self.socket

    def deliver(self, channel: int, *tags: int, size: int = 15, note: int = 0) -> None:
        """The broker sends messages of so many bytes, so many of them in a header."""
        header = noted(note) if note else HEADER
        for tag in tags:
            self.socket.handlers[channel].delivered(deliveries.RawDelivery(tag, b"", b"q", header, b"x" * (size - len(header))))

    def down(self, lost: ConnectionLost = ConnectionLost("gone")) -> None:  # noqa: B008 - an immutable tuple
        """The connection goes."""
        self.socket.ended.set_result(lost)
        self.source.down(lost)


HEADER = b"\x00\x3c" + bytes(10) + bytes(2)
"""No properties."""


def noted(size: int) -> bytes:
    """A content header of so many bytes, most of them the text of a header."""
    text = size - len(HEADER) - 11
    table = b"\x01nS" + text.to_bytes(4, "big") + b"x" * text
    return b"\x00\x3c" + bytes(10) + b"\x20\x00" + len(table).to_bytes(4, "big") + table


async def settle() -> None:
    """Let what is ready happen."""
    for _ in range(10):
        await asyncio.sleep(0)


async def take(rig: Rig, most: int = 100) -> Any:
    """What is here."""
    async with asyncio.timeout(5):
        return await rig.source.take(most, 1 << 20)
