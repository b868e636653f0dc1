"""What the receiver's side of the broker writes and keeps: channels, epochs, acknowledgements, pauses, and too many bytes; no server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from relay import events
from relay.amqp import incoming, wire
from relay.amqp.confirms import Return
from relay.amqp.link import Link, Lost
from relay.amqp.source import Source
from relay.inbox.events import QueueNarrowed, QueueOpened, QueueRefused

NAMES = {
    (20, 10): "open",
    (60, 10): "qos",
    (60, 20): "consume",
    (60, 30): "cancel",
    (60, 80): "ack",
    (20, 40): "close",
    (20, 41): "close-ok",
}
LIMIT = 1000


class Socket:
    """A tap that notes what is written."""

    def __init__(self) -> None:
        self.ears: dict[int, Any] = {}
        self.ended: asyncio.Future[Lost] = asyncio.get_running_loop().create_future()
        self.written: list[tuple[str, int, int]] = []
        """Method, channel, and the number of a qos or an ack."""

    def write(self, data: bytes) -> None:
        """Note each frame."""
        while data:
            channel, size = int.from_bytes(data[1:3], "big"), int.from_bytes(data[3:7], "big")
            payload, data = data[7 : 7 + size], data[8 + size :]
            name = NAMES[int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")]
            number = {"qos": payload[8:10], "ack": payload[4:12]}.get(name, b"")
            self.written.append((name, channel, int.from_bytes(number, "big")))

    def flush(self) -> list[tuple[str, int, int]]:
        """What was written since."""
        written, self.written = self.written, []
        return written


class Rig:
    """A source whose connection is up."""

    def __init__(self, *queues: str, prefetch: int = 4, paused: bool = False) -> None:
        self.events: list[events.Event] = []
        self.source = Source(
            urls=[], name="test", queues=queues, prefetch=prefetch, most_bytes=LIMIT * len(queues), max_body_bytes=lambda: LIMIT // 4,
            emit=self.events.append,
        )  # fmt: skip
        if paused:
            self.source.pause()
        self.up()

    def up(self) -> None:
        """Connect, again."""
        self.socket = Socket()
        self.source.up(cast("Link", self))

    @property
    def tap(self) -> Socket:
        """As a link has it."""
        return self.socket

    def deliver(self, channel: int, *tags: int, size: int = 15, note: int = 0) -> None:
        """The broker sends messages of so many bytes, so many of them in a header."""
        header = noted(note) if note else HEADER
        for tag in tags:
            self.socket.ears[channel].delivered(incoming.Delivered(tag, b"", b"q", header, b"x" * (size - len(header))))

    def down(self) -> None:
        """The connection goes."""
        self.socket.ended.set_result(Lost("gone"))
        self.source.down(Lost("gone"))


HEADER = b"\x00\x3c" + bytes(10) + bytes(2)
"""No properties."""


def noted(size: int) -> bytes:
    """A content header of so many bytes, most of them the text of a header."""
    text = size - len(HEADER) - 11
    table = b"\x01nS" + text.to_bytes(4, "big") + b"x" * text
    return b"\x00\x3c" + bytes(10) + b"\x20\x00" + len(table).to_bytes(4, "big") + table


@pytest.fixture
async def rig() -> Rig:
    """Two queues, consumed."""
    made = Rig("a", "b")
    await settle()
    for channel in (1, 2):
        made.socket.ears[channel].replied(incoming.CONSUME_OK)
    assert [("open", 1, 0), ("qos", 1, 4), ("consume", 1, 0), ("open", 2, 0), ("qos", 2, 4), ("consume", 2, 0)] == made.socket.flush()
    assert [QueueOpened("a"), QueueOpened("b")] == made.events
    made.events.clear()
    return made


async def settle() -> None:
    """Let what is ready happen."""
    for _ in range(10):
        await asyncio.sleep(0)


async def take(rig: Rig, most: int = 100) -> Any:
    """What is here."""
    async with asyncio.timeout(5):
        return await rig.source.take(most, 1 << 20)


async def test_each_channel_is_acknowledged_up_to_its_last_tag(rig: Rig) -> None:
    """Of those that are in the handful, however the queues took turns."""
    rig.deliver(1, 1, 2)
    rig.deliver(2, 1)
    rig.deliver(1, 3)
    first, rest = await take(rig, 3), await take(rig)

    rig.source.acknowledge(first)
    assert [("ack", 1, 2), ("ack", 2, 1)] == rig.socket.flush()
    rig.source.acknowledge(rest)
    assert [("ack", 1, 3)] == rig.socket.flush()


async def test_a_channel_that_was_closed_is_not_acknowledged_on(rig: Rig) -> None:
    """Its tags mean others on the next one; the other channel's are acknowledged, and the handful is not lost before both are."""
    rig.deliver(1, 1)
    rig.deliver(2, 1)
    handful = await take(rig)
    rig.socket.ears[1].closed(Return(404, "NOT_FOUND"))
    assert not rig.source.is_lost(handful)

    rig.source.acknowledge(handful)
    assert [("close-ok", 1, 0), ("ack", 2, 1)] == rig.socket.flush()
    await settle()
    assert [QueueRefused] == [type(event) for event in rig.events]

    rig.socket.ears[2].closed(Return(404, "NOT_FOUND"))
    assert rig.source.is_lost(handful)


async def test_what_came_on_a_lost_connection_is_forgotten(rig: Rig) -> None:
    """It comes again on the next, and acknowledgements of what was being written go nowhere."""
    rig.deliver(1, 1)
    handful = await take(rig)
    rig.deliver(1, 2)
    rig.down()
    rig.up()
    await settle()
    rig.socket.flush()
    assert rig.source.is_lost(handful)
    rig.source.acknowledge(handful)
    assert [] == rig.socket.flush()

    rig.deliver(1, 1)
    assert {1} == {*(await take(rig)).tags.values()}


async def test_a_pause_cancels_and_goes_on_where_it_was(rig: Rig) -> None:
    """Once each, however often it is said; what is here can be acknowledged meanwhile."""
    rig.deliver(1, 1)
    for _ in range(2):
        rig.source.pause()
    rig.source.acknowledge(await take(rig))
    for _ in range(2):
        rig.source.resume()

    assert [("cancel", 1, 0), ("cancel", 2, 0), ("ack", 1, 1), ("consume", 1, 0), ("consume", 2, 0)] == rig.socket.flush()


async def test_a_connection_that_comes_up_during_a_pause_takes_nothing() -> None:
    """It is consumed and cancelled in one breath, so that a queue that is missing is told of all the same."""
    rig = Rig("a", paused=True)
    await settle()
    assert ["open", "qos", "consume", "cancel"] == [name for name, _, _ in rig.socket.flush()]
    rig.source.resume()
    assert ["consume"] == [name for name, _, _ in rig.socket.flush()]


async def test_a_pause_while_the_broker_cancels_writes_nothing_behind_the_close(rig: Rig) -> None:
    """The broker would close the connection over a frame after it; the next channel is paused too."""
    rig.socket.ears[1].replied(incoming.CANCEL)
    rig.source.pause()
    rig.source.resume()
    rig.source.pause()
    rig.deliver(1, 9)
    assert [("close", 1, 0), ("cancel", 2, 0), ("consume", 2, 0), ("cancel", 2, 0)] == rig.socket.flush()
    rig.socket.ears[1].replied(wire.CHANNEL_CLOSE_OK)
    await settle()

    assert [QueueRefused] == [type(event) for event in rig.events]
    rig.deliver(2, 1)
    assert 1 == len((await take(rig)).deliveries)


@pytest.mark.parametrize("note", [0, 290])
async def test_more_bytes_than_may_be_here_go_back_and_fewer_come(rig: Rig, note: int) -> None:
    """What nobody has taken is given back with its channel, which is opened anew at once; the other queue goes on."""
    rig.deliver(2, 1)
    rig.deliver(1, 1, size=250)
    taken = await take(rig)
    rig.deliver(1, 2, 3, 4, size=300, note=note)

    assert [QueueNarrowed("a", 1150, 2)] == rig.events
    assert [("close", 1, 0)] == rig.socket.flush()
    rig.deliver(1, 5, size=300)
    assert not rig.source.is_lost(taken)
    rig.deliver(2, 2)
    assert [b"x"] == [delivery.payload for delivery in (await take(rig)).deliveries]

    rig.socket.ears[1].replied(wire.CHANNEL_CLOSE_OK)
    await settle()
    assert [("open", 1, 0), ("qos", 1, 2), ("consume", 1, 0)] == rig.socket.flush()
    rig.deliver(1, 1, size=300)
    assert [b"x" * (300 - len(HEADER))] == [delivery.payload for delivery in (await take(rig)).deliveries]
    rig.source.acknowledge(taken)
    assert [("ack", 2, 1)] == rig.socket.flush()
    assert [QueueNarrowed] == [type(event) for event in rig.events]
