"""AMQP 0-9-1 frames: splits the broker's bytes into frames, and builds the few frames that the relay's channels need; no I/O.

Channel 0 belongs to aiormq (login, tuning, heartbeats, close), which gets complete frames; every other channel
belongs to the relay. Layouts and numbers are those of the AMQP 0-9-1 specification and RabbitMQ's extensions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from relay.errors import BrokerError

HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
ACCESS_REFUSED, NOT_FOUND, NOT_ALLOWED = 403, 404, 530
CHANNEL_CLOSE, CHANNEL_CLOSE_OK, QOS_OK = (20, 40), (20, 41), (60, 11)
_BASIC_RETURN, _BASIC_ACK, _BASIC_NACK = (60, 50), (60, 80), (60, 120)
_CONNECTION_CLOSE, _CONNECTION_BLOCKED, _CONNECTION_UNBLOCKED = (10, 50), (10, 60), (10, 61)
_METHOD, _HEADER, _BODY, _HEARTBEAT, _END = 1, 2, 3, 8, 0xCE
_FRAMING = 8
"""Bytes of a frame around its payload: type, channel, size, end."""
_HEAD = struct.Struct(">BHI").unpack_from
_IDS = struct.Struct(">HH").unpack_from
_CONFIRM = struct.Struct(">QB").unpack_from
_SHORT = struct.Struct(">H").unpack_from
_LONG = struct.Struct(">I").unpack_from
_LONGLONG = struct.Struct(">Q").unpack_from
_LARGEST_BEFORE_TUNING: Final = 1 << 20
"""Most bytes of a frame before a size has been negotiated; RabbitMQ's own login frames are below 4 KiB."""
_LARGEST_UNLIMITED: Final = 1 << 28
"""Most bytes of a frame if the broker sets no limit: a returned body then comes in one frame, whatever size the message has."""
_FRAME_KINDS: Final = (_METHOD, _HEADER, _BODY, _HEARTBEAT)

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_RELAY_ID: Final = b"x-relay-id"
_FIXED: Final = {
    **dict.fromkeys(b"V", 0),
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"D", 5),
}
"""Bytes of a field value by its type octet; the long kinds `SxAF` carry their own length."""


class ReplyReason(NamedTuple):
    """Why the broker returned a message, or closes a channel or the connection (AMQP 0-9-1, "Reply Codes")."""

    code: int
    text: str


class ChannelHandler(Protocol):
    """Receives the broker's methods on one channel."""

    def acked(self, tag: int, *, multiple: bool) -> None:
        """`basic.ack`: the broker accepted the message."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """`basic.nack`: the broker refused the message."""

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """`basic.return`: the message is unroutable; its ack follows."""

    def replied(self, method: tuple[int, int]) -> None:
        """Any other method."""

    def closed(self, reason: ReplyReason) -> None:
        """`channel.close`: messages in flight get no answer, and the only frame that may follow is `channel.close-ok`."""


class ConnectionWatcher(Protocol):
    """Receives the broker's methods about the whole connection."""

    def blocked(self, reason: str) -> None:
        """`connection.blocked`: a resource alarm."""

    def unblocked(self) -> None:
        """`connection.unblocked`."""

    def closing(self, reason: ReplyReason) -> None:
        """`connection.close`: the broker ignores everything that is written from now on."""


def open_channel(channel: int) -> bytes:
    """Open a channel with confirms; the answers need not be awaited, because a channel's methods are carried out in order."""
    return method(channel, b"\x00\x14\x00\x0a\x00") + method(channel, b"\x00\x55\x00\x0a\x00")


def close_channel(channel: int) -> bytes:
    """Close a channel with reply code 200."""
    return method(channel, b"\x00\x14\x00\x28\x00\xc8\x00\x00\x00\x00\x00")


def close_channel_ok(channel: int) -> bytes:
    """Answer the broker's `channel.close`."""
    return method(channel, b"\x00\x14\x00\x29")


def ask_qos(channel: int) -> bytes:
    """`basic.qos` without effect. An answer proves that no earlier frame on this channel has closed the channel."""
    return method(channel, b"\x00\x3c\x00\x0a\x00\x00\x00\x00\x00\x00\x00")


def method(channel: int, payload: bytes) -> bytes:
    """A method frame."""
    return b"".join((b"\x01", channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload, b"\xce"))


@dataclass(slots=True)
class _Content:
    """A returned message while its header and body frames arrive."""

    reason: ReplyReason
    relay_id: str = ""
    missing: int = 0


class FrameParser:
    """Cuts a byte stream into frames and calls handlers and watcher; returns the frames of channel 0."""

    def __init__(self, watcher: ConnectionWatcher) -> None:
        self.handlers: dict[int, ChannelHandler] = {}
        self._watcher = watcher
        self._rest = b""
        self._contents: dict[int, _Content] = {}
        self._largest = _LARGEST_BEFORE_TUNING
        self._greeted = False
        """Whether the other side has sent a frame, and so speaks AMQP 0-9-1."""
        self._foreign = False

    def limit(self, frame_max: int) -> None:
        """From now on, accept no frame of more than `frame_max` bytes, its head and end included; 0: the broker sets no limit."""
        self._largest = frame_max or _LARGEST_UNLIMITED

    def feed(self, data: bytes) -> bytes:
        """Take bytes as they arrive; return the complete frames of channel 0 among them.

        Raises:
            BrokerError: the bytes break the protocol; the connection cannot be used any more.
        """
        if self._foreign:
            return data
        buffer = self._rest + data if self._rest else data
        ours: list[bytes] = []
        at, end = 0, len(buffer)
        while end - at >= _FRAMING:
            kind, channel, size = _HEAD(buffer, at)
            if kind not in _FRAME_KINDS or _FRAMING + size > self._largest:
                return self._give_up(buffer, kind, size)
            stop = at + _FRAMING + size
            if stop > end:
                break
            if buffer[stop - 1] != _END:
                raise BrokerError("The broker sent a frame without its end octet; the connection is dropped and opened again.")
            if channel:
                self._on_channel(kind, channel, buffer, at + 7, stop - 1)
            else:
                ours.append(buffer[at:stop])
                self._on_connection(kind, buffer, at + 7)
            at, self._greeted = stop, True
        self._rest = buffer[at:]
        return b"".join(ours)

    def _give_up(self, buffer: bytes, kind: int, size: int) -> bytes:
        """Handle bytes that are not a frame. The first bytes may be the `AMQP` header of another protocol version, which aiormq reports."""
        if self._greeted:
            too_large = f"a frame of {_FRAMING + size} bytes, {self._largest} were agreed at the most"
            what = too_large if kind in _FRAME_KINDS else "bytes that are no frame"
            raise BrokerError(f"The broker sent {what}; the connection is dropped and opened again.")
        self._foreign = True
        return buffer

    def _on_connection(self, kind: int, buffer: bytes, at: int) -> None:
        if kind != _METHOD:
            return
        method = _IDS(buffer, at)
        if method == _CONNECTION_CLOSE:
            self._watcher.closing(_reason(buffer, at + 4))
        elif method == _CONNECTION_BLOCKED:
            self._watcher.blocked(_short_string(buffer, at + 4))
        elif method == _CONNECTION_UNBLOCKED:
            self._watcher.unblocked()

    def _on_channel(self, kind: int, channel: int, buffer: bytes, at: int, stop: int) -> None:
        handler = self.handlers.get(channel)
        if handler is None:
            return
        if kind != _METHOD:
            self._on_content(kind, channel, buffer[at:stop], handler)
            return
        method = _IDS(buffer, at)
        if method == _BASIC_ACK:
            tag, bits = _CONFIRM(buffer, at + 4)
            handler.acked(tag, multiple=bits & 1 == 1)
        elif method == _BASIC_NACK:
            tag, bits = _CONFIRM(buffer, at + 4)
            handler.nacked(tag, multiple=bits & 1 == 1)
        elif method == _BASIC_RETURN:
            self._contents[channel] = _Content(_reason(buffer, at + 4))
        elif method == CHANNEL_CLOSE:
            self._contents.pop(channel, None)
            handler.closed(_reason(buffer, at + 4))
        else:
            handler.replied(method)

    def _on_content(self, kind: int, channel: int, payload: bytes, handler: ChannelHandler) -> None:
        """Collect the content of a returned message; no other method has content here. The content ends with the last byte of the body."""
        content = self._contents.get(channel)
        if content is None:
            raise BrokerError("The broker sent content that was not requested; the connection is dropped and opened again.")
        if kind == _HEADER:
            content.relay_id, content.missing = relay_id_of(payload), _LONGLONG(payload, 4)[0]
        else:
            content.missing -= len(payload)
        if content.missing <= 0:
            del self._contents[channel]
            handler.returned(content.relay_id, content.reason)


def relay_id_of(payload: bytes) -> str:
    """The header `x-relay-id` in the payload of a content header frame: only from the top level, and the last one of several.

    Raises:
        BrokerError: the header is missing, so the message cannot be identified.
    """
    flags, at = _SHORT(payload, 12)[0], 14
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            at += 1 + payload[at]
    found = None
    if flags & _HEADERS:
        stop = at + 4 + _LONG(payload, at)[0]
        at += 4
        while at < stop:
            key, value, at = _field(payload, at)
            found = value if key == _RELAY_ID else found
    if found is None:
        raise BrokerError("The broker returned a message without x-relay-id; the connection is dropped and opened again.")
    return found.decode("utf-8", "replace")


def _field(payload: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Key, raw value and end of a field of a table."""
    key = payload[at + 1 : at + 1 + payload[at]]
    at += 1 + payload[at]
    kind = payload[at]
    at += 1
    if kind in _FIXED:
        size = _FIXED[kind]
    elif kind in b"SxAF":
        size, at = _LONG(payload, at)[0], at + 4
    else:
        raise BrokerError(f"The broker sent a header of the unknown type {kind}; the connection is dropped and opened again.")
    return key, payload[at : at + size], at + size


def _reason(buffer: bytes, at: int) -> ReplyReason:
    return ReplyReason(_SHORT(buffer, at)[0], _short_string(buffer, at + 2))


def _short_string(buffer: bytes, at: int) -> str:
    return buffer[at + 1 : at + 1 + buffer[at]].decode("utf-8", "replace")
