"""Publish options: from the JSON of the column `options` to AMQP property bytes, or to a code and a sentence.

Wire types: AMQP 0-9-1 section 4.2 with RabbitMQ's field tags.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from relay.codec.option_rules import KEY_LIST, SHORT_LIMIT, OptionsError, check_key_list, check_text, collect, parse, printable

HEADER_NAME_LIMIT: Final = 128
"""Most bytes of a header name (AMQP 0-9-1 section 4.2.5.5); clients cut longer names without an error."""
DEPTH_LIMIT: Final = 64
"""Most levels of lists and objects below `headers`."""
VALUES_LIMIT: Final = 8000
"""Most values in headers, including lists and objects. Each value takes 2 us to encode, however short it is: 25,000 values took 50 ms."""
FILTER_HEADER: Final = "x-stream-filter-value"
"""A header that streams of RabbitMQ 3.13 and later read. They close the publisher's connection over any value except a short string."""
RELAY_HEADERS: Final = ("x-relay-id", "x-relay-replay-of")
"""Headers that only the relay sets; they are left out if an application copied them from a received message."""
BROKER_HEADERS: Final = (
    *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"),
    *("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-stream-offset"),
    *("x-received-from", "x-shovelled", "x-invalid-headers", "x-exchange", "x-routing-key", "x-cc", "x-reply-to-topic"),
)
"""Headers that RabbitMQ, its federation, its shovels and MQTT write and read; they are left out too. In RabbitMQ 3.10, a dead-lettering
queue crashes over an `x-death` of another form, and other messages are lost too."""
CORRELATION_HEADER: Final = "x-correlation-id"
"""A header that RabbitMQ 4 reads for MQTT subscribers, whose connections end over any value except a string. It is left out only if it is
not a string, because applications use that name too."""
BROKER_PREFIXES: Final = ("x-amqp-1.0-", "x-basic-", "x-mqtt-")
"""Prefixes of header names. Headers with these prefixes are left out too: streams use them for properties and sections of AMQP 1.0, and
MQTT for its quality of service. An unexpected value closes the connection of the publisher, of every consumer of the stream, or of an MQTT
subscriber (RabbitMQ 3.10.8)."""


class Plan(NamedTuple):
    """Options as property bytes in wire order; the encoder fills in the parts that differ between messages."""

    mandatory: bool | None
    flags: int
    """Property flags, including the flags that the relay always sets."""
    content_type: bytes | None
    content_encoding: bytes
    headers: bytes
    """Entries of the headers table, including CC and BCC, without the relay's own headers."""
    middle: bytes
    """`delivery_mode`, `priority`, `correlation_id`, `reply_to`, `expiration`."""
    message_id: bytes | None
    tail: bytes
    """`timestamp`, `type`, `user_id`, `app_id`."""


def plan(text: str, headers_limit: int) -> Plan:
    """Compile the JSON text of the column `options`.

    Args:
        text: the JSON text; numbers keep their exact integer value, fractions become doubles.
        headers_limit: most bytes of the headers, including CC and BCC, on the wire.

    Raises:
        OptionsError: the options can never be sent; the error has the code and the sentence of docs/options.md.
    """
    try:
        return _compile(collect(parse(text)), headers_limit)
    except RecursionError:
        raise OptionsError("headers_too_deep", f"options.headers is nested deeper than {DEPTH_LIMIT} levels") from None
    except UnicodeEncodeError:
        raise OptionsError("text_invalid", "options holds text that is not valid UTF-8; escape it or leave it out") from None


def short_string(text: str) -> bytes:
    """Encode a short string: one byte of length, then UTF-8; ValueError over 255 bytes."""
    data = text.encode()
    if len(data) > SHORT_LIMIT:
        raise ValueError(f"{len(data)} bytes")
    return bytes((len(data),)) + data


def _compile(found: dict[str, tuple[str, Any]], headers_limit: int) -> Plan:
    values = {name: value for name, (_, value) in found.items()}
    mandatory, content_type, message_id = values.get("mandatory"), values.get("content_type"), values.get("message_id")
    middle_flags, middle = _properties((("priority", 11), ("correlation_id", 10), ("reply_to", 9), ("expiration", 8)), values)
    tail_flags, tail = _properties((("timestamp", 6), ("type", 5), ("user_id", 4), ("app_id", 3)), values)
    coding_flag, coding = _properties((("content_encoding", 14),), values)
    return Plan(
        mandatory=mandatory,
        # content_type, headers, delivery_mode and message_id are always set.
        flags=0b1011_0000_1000_0000 | coding_flag | middle_flags | tail_flags,
        content_type=None if content_type is None else short_string(content_type),
        content_encoding=coding,
        headers=_headers(values, headers_limit),
        middle=bytes((_delivery_mode(values),)) + middle,
        message_id=None if message_id is None else short_string(message_id),
        tail=tail,
    )


def _delivery_mode(values: dict[str, Any]) -> int:
    """The delivery mode: `persistent` overrides `deliveryMode`, as in amqplib; 2 if neither is given."""
    if "persistent" in values:
        return 2 if values["persistent"] else 1
    mode = values.get("delivery_mode", 2)
    return 2 if mode is True else int(mode)


def _properties(fields: Iterable[tuple[str, int]], values: dict[str, Any]) -> tuple[int, bytes]:
    """Flags and bytes of the given properties, in the given (wire) order."""
    flags, parts = 0, []
    for name, bit in fields:
        if name in values:
            flags |= 1 << bit
            parts.append(_property(name, values[name]))
    return flags, b"".join(parts)


def _property(name: str, value: Any) -> bytes:
    if name == "priority":
        return bytes((int(value),))
    if name == "timestamp":
        return int(value).to_bytes(8, "big")
    return short_string(value if isinstance(value, str) else str(int(value)))


def _headers(values: dict[str, Any], limit: int) -> bytes:
    """Entries of the headers table, without its length."""
    headers = {name: value for name, value in values.get("headers", {}).items() if not name.startswith(BROKER_PREFIXES)}
    for name in (*RELAY_HEADERS, *BROKER_HEADERS):
        headers.pop(name, None)
    if not isinstance(headers.get(CORRELATION_HEADER, ""), str):
        del headers[CORRELATION_HEADER]
    for name in ("CC", "BCC"):
        _select(headers, name, values.get(name.lower()))
    if code := check_text(headers.get(FILTER_HEADER, "")):
        raise OptionsError(code, f"options.headers.{FILTER_HEADER} must be a string of at most {SHORT_LIMIT} bytes")
    _count(headers)
    data = _table(headers, 0)
    if len(data) > limit:
        sentence = f"options.headers takes {len(data)} bytes on the wire, CC and BCC included; the limit is {limit} bytes"
        raise OptionsError("headers_too_large", sentence)
    return data


def _count(headers: dict[str, Any]) -> None:
    """Refuse headers with too many values; counting stops at the limit."""
    found = 0
    tables: list[dict[str, Any] | list[Any]] = [headers]
    while tables:
        table = tables.pop()
        values = table.values() if isinstance(table, dict) else table
        found += len(values)
        if found > VALUES_LIMIT:
            raise OptionsError("headers_too_large", f"options.headers holds more than {VALUES_LIMIT} values, CC and BCC included")
        tables.extend(value for value in values if isinstance(value, dict | list))


def _select(headers: dict[str, Any], name: str, option: Any) -> None:
    """Put the option CC or BCC where RabbitMQ reads it (sender-selected distribution): in a header that is a list."""
    if name in headers:
        code = check_key_list(headers[name])
        if code:
            raise OptionsError(code, f"options.headers.{name} must be {KEY_LIST}")
    if option is None:
        return
    keys = option if isinstance(option, list) else [option]
    if headers.setdefault(name, keys) != keys:
        raise OptionsError("option_conflict", f"options.{name} and options.headers.{name} differ; give one of them")


def _table(entries: dict[str, Any], depth: int) -> bytes:
    parts: list[bytes] = []
    for name, value in entries.items():
        data = name.encode()
        if not 0 < len(data) <= HEADER_NAME_LIMIT:
            sentence = f"options.headers has a name that is empty or longer than {HEADER_NAME_LIMIT} bytes: {printable(name)}"
            raise OptionsError("header_name", sentence)
        parts += (bytes((len(data),)), data, _field(value, depth + 1))
    return b"".join(parts)


def _field(value: Any, depth: int) -> bytes:
    """One tagged value; depth counts from 1 for a header's own value."""
    if depth > DEPTH_LIMIT:
        raise OptionsError("headers_too_deep", f"options.headers is nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, str):
        return _long(b"S", value.encode())
    if isinstance(value, dict):
        return _long(b"F", _table(value, depth))
    if isinstance(value, list):
        return _long(b"A", b"".join([_field(item, depth + 1) for item in value]))
    return _scalar(value)


def _long(tag: bytes, data: bytes) -> bytes:
    return tag + len(data).to_bytes(4, "big") + data


def _scalar(value: object) -> bytes:
    """One tagged value without members. Integers are always 64 bits wide: the type on the wire must not change with the value."""
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return struct.pack(">cq", b"l", value)
    if isinstance(value, float) and math.isfinite(value):
        return struct.pack(">cd", b"d", value)
    sentence = "options.headers holds a number that fits neither a 64-bit integer nor a double; send it as a string"
    raise OptionsError("number_out_of_range", sentence)
