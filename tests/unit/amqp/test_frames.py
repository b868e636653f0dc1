"""Frames from the broker, in any pieces; pamqp builds them, so that the parser is not tested against itself."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.frame import marshal, unmarshal
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from relay.amqp import frames as wire
from relay.amqp.frames import ReplyReason
from relay.errors import BrokerError

Heard = tuple[object, ...]
ID = "0189c2f6-7c5e-7d3a-9a53-2f4f1f0a6f10"


class Recorder:
    """Handler of one channel, or watcher of the connection, that writes down what it hears."""

    def __init__(self, heard: list[Heard], channel: int = 0) -> None:
        self.heard = heard
        self.channel = channel

    def acked(self, tag: int, *, multiple: bool) -> None:
        """Write it down."""
        self.heard.append((self.channel, "ack", tag, multiple))

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """Write it down."""
        self.heard.append((self.channel, "nack", tag, multiple))

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """Write it down."""
        self.heard.append((self.channel, "return", relay_id, *reason))

    def replied(self, method: tuple[int, int]) -> None:
        """Write it down."""
        self.heard.append((self.channel, "reply", method))

    def closed(self, reason: ReplyReason) -> None:
        """Write it down."""
        self.heard.append((self.channel, "close", *reason))

    def closing(self, reason: ReplyReason) -> None:
        """Write it down."""
        self.heard.append((self.channel, "close", *reason))

    def blocked(self, reason: str) -> None:
        """Write it down."""
        self.heard.append((self.channel, "blocked", reason))

    def unblocked(self) -> None:
        """Write it down."""
        self.heard.append((self.channel, "unblocked"))


def hear(data: bytes, *cuts: int) -> tuple[list[Heard], bytes]:
    """Feed bytes, cut at these places, to a wire with handlers on channels 1 and 2; return what was heard and what is aiormq's."""
    heard: list[Heard] = []
    listening = wire.FrameParser(Recorder(heard))
    listening.handlers.update({number: Recorder(heard, number) for number in (1, 2)})
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    ours = b"".join(listening.feed(data[start:stop]) for start, stop in pairwise(places))
    return heard, ours


def content(body: bytes, properties: commands.Basic.Properties, channel: int = 1, chunk: int = 100) -> bytes:
    """Header and body frames."""
    bodies: list[ContentHeader | ContentBody] = [ContentBody(body[at : at + chunk]) for at in range(0, len(body), chunk)]
    return b"".join(marshal(part, channel) for part in [ContentHeader(0, len(body), properties), *bodies])


def returned(properties: commands.Basic.Properties, body: bytes = b"{}", channel: int = 1) -> bytes:
    """A whole returned message."""
    return marshal(commands.Basic.Return(312, "NO_ROUTE", "orders", "new"), channel) + content(body, properties, channel)


MESSAGE = commands.Basic.Properties(
    content_type="application/json", content_encoding="gzip", headers={"x-relay-id": ID}, message_id="of the app", delivery_mode=2
)
STREAM: list[tuple[bytes, Heard | None]] = [
    (marshal(commands.Basic.Ack(7, multiple=True), 1), (1, "ack", 7, True)),
    (marshal(Heartbeat(), 0), None),
    (marshal(commands.Basic.Nack(1 << 40, multiple=False), 2), (2, "nack", 1 << 40, False)),
    (returned(MESSAGE, b"x" * 250), (1, "return", ID, 312, "NO_ROUTE")),
    (returned(MESSAGE, b"", 2), (2, "return", ID, 312, "NO_ROUTE")),
    (marshal(commands.Connection.Blocked("low on memory"), 0), (0, "blocked", "low on memory")),
    (marshal(commands.Connection.Unblocked(), 0), (0, "unblocked")),
    (marshal(commands.Basic.QosOk(), 2), (2, "reply", wire.QOS_OK)),
    (marshal(commands.Channel.Close(404, "NOT_FOUND - no exchange 'é'", 60, 40), 1), (1, "close", 404, "NOT_FOUND - no exchange 'é'")),
    (marshal(commands.Channel.CloseOk(), 2), (2, "reply", wire.CHANNEL_CLOSE_OK)),
    (marshal(commands.Basic.Ack(1), 3), None),
    (marshal(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0), (0, "close", 320, "CONNECTION_FORCED")),
]
BYTES = b"".join(data for data, _ in STREAM)
EXPECTED = [heard for _, heard in STREAM if heard]
OURS = b"".join(data for data, _ in STREAM if data[1:3] == b"\x00\x00")


def test_every_frame_is_heard_on_its_channel_and_channel_0_is_handed_on() -> None:
    """Acks, returns and closes go to the handler of their channel, frames of channel 0 to aiormq, unheard channels nowhere."""
    assert hear(BYTES) == (EXPECTED, OURS)


def test_a_stream_that_comes_byte_by_byte_is_heard_the_same() -> None:
    """TCP keeps no frame together."""
    assert hear(BYTES, *range(len(BYTES))) == (EXPECTED, OURS)


@given(st.lists(st.integers(0, len(BYTES)), max_size=30))
def test_a_stream_in_any_pieces_is_heard_the_same(cuts: list[int]) -> None:
    """Wherever the pieces end, nothing is lost, doubled or out of order."""
    assert hear(BYTES, *cuts) == (EXPECTED, OURS)


def test_returned_messages_of_two_channels_may_be_interleaved() -> None:
    """Frames of one message stand in order on their channel, with those of other channels in between (AMQP 0-9-1, 4.2.6)."""
    first = [marshal(commands.Basic.Return(312, "NO_ROUTE", "a", ""), 1), *split(content(b"x" * 150, MESSAGE, 1))]
    second = [marshal(commands.Basic.Return(313, "NO_CONSUMERS", "b", ""), 2), *split(content(b"y" * 150, MESSAGE, 2))]
    woven = b"".join(frame for pair in zip(first, second, strict=True) for frame in pair)
    assert hear(woven)[0] == [(1, "return", ID, 312, "NO_ROUTE"), (2, "return", ID, 313, "NO_CONSUMERS")]


def split(data: bytes) -> list[bytes]:
    """Whole frames, one by one."""
    frames = []
    while data:
        size = unmarshal(data)[0]
        frames.append(data[:size])
        data = data[size:]
    return frames


@pytest.mark.parametrize(
    "headers",
    [
        {"a": {"x-relay-id": "nested"}, "x-relay-id": ID},
        {"x-relay-id": ID, "z": [{"x-relay-id": "in a list"}, 1, None, True, 1.5, datetime(2026, 1, 1, tzinfo=UTC)]},
        {"b": b"\x00\xff".decode("latin-1"), "n": 1 << 60, "t": True, "f": 2.5, "v": None, "x-relay-id": ID, "big": "k" * 5000},
    ],
)
def test_the_relay_id_is_found_at_the_top_level_only(headers: dict[str, object]) -> None:
    """An app may put any headers on its message, also one that looks like ours further in."""
    properties = commands.Basic.Properties(headers=headers)  # type: ignore[arg-type] # pamqp's own types leave out what it encodes
    assert hear(returned(properties))[0] == [(1, "return", ID, 312, "NO_ROUTE")]


def test_a_type_of_the_clients_that_differs_from_the_specification_is_skipped() -> None:
    """RabbitMQ's own field types (`d` double, `D` decimal, `x` bytes, `l` long, `s` short) have the lengths that it documents."""
    odd = b"\x01ad" + bytes(8) + b"\x01bD" + bytes(5) + b"\x01cx\x00\x00\x00\x03abc" + b"\x01ds\x00\x01" + b"\x01eL" + bytes(8)
    table = odd + b"\x0ax-relay-idS\x00\x00\x00\x24" + ID.encode()
    payload = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + len(table).to_bytes(4, "big") + table
    assert wire.relay_id_of(payload) == ID


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (returned(commands.Basic.Properties(headers={"a": "b"})), "without x-relay-id"),
        (returned(commands.Basic.Properties()), "without x-relay-id"),
        (content(b"x", MESSAGE), "content that was not requested"),
        (marshal(commands.Basic.Ack(7), 1)[:-1] + b"\x00", "without its end octet"),
        (b"\x02\x00\x01\x00\x00\x00\x1b" + BYTES[:27] + b"\xce", "content that was not requested"),
    ],
)
def test_bytes_that_break_the_protocol_are_an_error(data: bytes, words: str) -> None:
    """What cannot be attributed must not be taken for a confirm."""
    with pytest.raises(BrokerError, match=words):
        hear(data)


AGREED = 4096
LARGE = marshal(ContentBody(b"x" * (AGREED - 8)), 3)


def listening(*agreed: int) -> wire.FrameParser:
    """A wire whose other side has greeted and agreed on a size of frames."""
    made = wire.FrameParser(Recorder([]))
    made.feed(marshal(Heartbeat(), 0))
    for size in agreed:
        made.limit(size)
    return made


@pytest.mark.parametrize(("agreed", "size"), [((), 1 << 20), ((AGREED,), AGREED), ((0,), 1 << 28)])
def test_a_frame_that_is_larger_than_agreed_is_an_error_before_it_has_come(agreed: tuple[int, ...], size: int) -> None:
    """Waiting for the rest would be a hang. Before the tuning a MiB is allowed, without a limit what a message may have."""
    head = b"\x03\x00\x01" + (size - 7).to_bytes(4, "big") + b"x"
    with pytest.raises(BrokerError, match=f"^The broker sent a frame of {size + 1} bytes, {size} were agreed at the most; the connection "):
        listening(*agreed).feed(head)


@pytest.mark.parametrize("agreed", [AGREED, 0])
def test_a_frame_of_the_agreed_size_is_taken(agreed: int) -> None:
    """The size is that of the whole frame (AMQP 0-9-1, 4.2.3)."""
    assert listening(agreed).feed(LARGE) == b""


def test_bytes_between_frames_are_an_error() -> None:
    """Who has spoken AMQP 0-9-1 once has no other version to offer, and nothing that follows can be read."""
    with pytest.raises(BrokerError, match="The broker sent bytes that are no frame; the connection is dropped"):
        listening().feed(b"HTTP/1.1 400 Bad Request")


def test_a_header_of_an_unknown_type_is_an_error() -> None:
    """Without its length nothing after it can be read."""
    payload = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + b"\x00\x00\x00\x04\x01aZ\x00"
    with pytest.raises(BrokerError, match="unknown type 90"):
        wire.relay_id_of(payload)


def test_what_is_no_amqp_frame_is_left_to_aiormq() -> None:
    """A broker that speaks another version answers with its protocol header; aiormq knows what to say of it."""
    greeting = b"AMQP\x00\x01\x00\x00"
    assert hear(greeting) == ([], greeting)
    assert hear(b"HTTP/1.1 400 Bad Request\r\n", 9, 12) == ([], b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (wire.open_channel(9), [commands.Channel.Open(), commands.Confirm.Select()]),
        (wire.close_channel(9), [commands.Channel.Close(200, "", 0, 0)]),
        (wire.close_channel_ok(9), [commands.Channel.CloseOk()]),
        (wire.ask_qos(9), [commands.Basic.Qos()]),
    ],
)
def test_the_frames_of_a_channel_are_those_of_the_specification(data: bytes, expected: list[Frame]) -> None:
    """What the relay writes reads as this in pamqp; the reserved field of `channel.open` is left empty."""
    read = [(channel, fields(cast("Frame", frame))) for _, channel, frame in map(unmarshal, split(data))]
    assert read == [(9, fields(frame)) for frame in expected]


def fields(frame: Frame) -> dict[str, object]:
    """Name and arguments of a method, without the reserved field."""
    return {"method": frame.name, **dict(frame), "out_of_band": None}


def test_the_heartbeat_is_a_heartbeat() -> None:
    """The frame that replaces what aiormq does not see."""
    assert marshal(Heartbeat(), 0) == wire.HEARTBEAT_FRAME
