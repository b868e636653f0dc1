"""Deliveries as bytes from the socket, and the few frames that a consuming channel sends; no I/O.

This module does not parse a message's properties, so that no message can end the connection. The code that takes the message parses them.
"""

from __future__ import annotations

import struct
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, cast

from relay.amqp.consuming import fields
from relay.amqp.frames import ChannelHandler, FrameParser, method
from relay.codec.options import short_string

CANCEL, CANCEL_OK, CONSUME_OK = (60, 30), (60, 31), (60, 21)
_DELIVER: Final = (60, 60)
_METHOD: Final = 1
_HEADER: Final = 2
_IDS = struct.Struct(">HH").unpack_from
_TAG = struct.Struct(">Q").unpack_from


class RawDelivery(NamedTuple):
    """One message as it arrived, with names and properties as bytes."""

    tag: int
    exchange: bytes
    routing_key: bytes
    header: bytes
    """Payload of the content header frame."""
    body: bytes

    def properties(self) -> dict[str, Any]:
        """See `relay.amqp.consuming.fields.properties`."""
        return fields.properties(self.header)


class DeliveryHandler(ChannelHandler, Protocol):
    """A channel handler that takes deliveries."""

    def delivered(self, message: RawDelivery) -> None:
        """A `basic.deliver` has arrived, with its content."""


@dataclass(slots=True)
class _Begun:
    """A delivery whose content is still incomplete."""

    tag: int
    exchange: bytes
    routing_key: bytes
    header: bytes = b""
    missing: int = -1
    """Bytes of the body that have not arrived; negative before the header."""
    parts: list[bytes] = field(default_factory=list)


class DeliveryReader(FrameParser):
    """A frame parser that also reads deliveries."""

    def __init__(self, watcher: Any) -> None:
        super().__init__(watcher)
        self._begun: dict[int, _Begun] = {}

    def _on_channel(self, kind: int, channel: int, buffer: bytes, at: int, stop: int) -> None:
        if kind == _METHOD and _IDS(buffer, at) == _DELIVER:
            self._begun[channel] = _deliver(buffer, at + 4)
        elif kind != _METHOD and channel in self._begun:
            self._on_delivery(kind, channel, buffer[at:stop])
        else:
            super()._on_channel(kind, channel, buffer, at, stop)

    def _on_delivery(self, kind: int, channel: int, payload: bytes) -> None:
        begun = self._begun[channel]
        if kind == _HEADER:
            begun.header, begun.missing = payload, _TAG(payload, 4)[0]
        else:
            begun.parts.append(payload)
            begun.missing -= len(payload)
        if begun.missing <= 0:
            del self._begun[channel]
            handler = self.handlers.get(channel)
            if handler is not None:
                body = begun.parts[0] if len(begun.parts) == 1 else b"".join(begun.parts)
                cast("DeliveryHandler", handler).delivered(RawDelivery(begun.tag, begun.exchange, begun.routing_key, begun.header, body))


def _deliver(buffer: bytes, at: int) -> _Begun:
    """Consumer tag, delivery tag, redelivered, exchange, routing key (AMQP 0-9-1, `basic.deliver`)."""
    at += 1 + buffer[at]
    tag = _TAG(buffer, at)[0]
    at += 9
    exchange = buffer[at + 1 : at + 1 + buffer[at]]
    at += 1 + buffer[at]
    return _Begun(tag, exchange, buffer[at + 1 : at + 1 + buffer[at]])


def open_consumer(channel: int, queue: str, prefetch: int) -> bytes:
    """Open a channel, limit its unacknowledged messages, and consume; the broker answers in this order, or with `channel.close`."""
    return method(channel, b"\x00\x14\x00\x0a\x00") + consume_next(channel, queue, prefetch)


def consume_next(channel: int, queue: str, prefetch: int) -> bytes:
    """Limit the unacknowledged messages and consume, on a channel that is already open."""
    return bound(channel, prefetch) + consume(channel, queue)


def bound(channel: int, prefetch: int) -> bytes:
    """`basic.qos`, which applies to consumers that start later."""
    return method(channel, b"\x00\x3c\x00\x0a\x00\x00\x00\x00" + prefetch.to_bytes(2, "big") + b"\x00")


def consume(channel: int, queue: str) -> bytes:
    """`basic.consume` with acknowledgements; the consumer tag is `relay`, because a channel has one consumer.

    The frame names the priority that every consumer has by default. A stream has no priorities, so the broker refuses to consume a stream:
    see `relay.amqp.close_reasons`.
    """
    return method(channel, b"\x00\x3c\x00\x14\x00\x00" + short_string(queue) + _CONSUMER + b"\x00" + _PRIORITY)


def cancel(channel: int) -> bytes:
    """`basic.cancel`; deliveries that are on their way still arrive."""
    return method(channel, b"\x00\x3c\x00\x1e" + _CONSUMER + b"\x00")


def acknowledge(channel: int, tags: Sequence[int], *, first: int | None) -> bytes:
    """`basic.ack` of these tags, lowest first. One frame acknowledges all tags below `first`, the lowest tag that stays unacknowledged."""
    together = len(tags) if first is None else bisect(tags, first)
    frames = [_acknowledge(channel, tags[together - 1], up_to=True)] if together else []
    return b"".join(frames + [_acknowledge(channel, tag, up_to=False) for tag in tags[together:]])


def _acknowledge(channel: int, tag: int, *, up_to: bool) -> bytes:
    return method(channel, b"\x00\x3c\x00\x50" + tag.to_bytes(8, "big") + bytes((up_to,)))


_CONSUMER: Final = short_string("relay")
_ARGUMENT: Final = short_string("x-priority") + b"I" + bytes(4)
_PRIORITY: Final = len(_ARGUMENT).to_bytes(4, "big") + _ARGUMENT
