"""A delivery from a queue as the inbox stores it, or why it never can be. No I/O.

A payload that says it is JSON becomes `content`; any other stays as it came, in `body`. Properties become `options` under the names that
an outbox has for them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from math import isfinite, isnan
from typing import Any, Final, NamedTuple
from uuid import uuid4

from relay.client.message import JsonText, content_text
from relay.codec.json_text import json_text, walk_json
from relay.codec.option_rules import TIMESTAMP_LIMIT
from relay.memory import KEPT, of_text

RELAY_ID: Final = "x-relay-id"
TIMESTAMP: Final = "x-relay-timestamp"
"""Header of the inbox that holds a property `timestamp` which is no number of seconds up to the year 9999, such as one in milliseconds."""
_BEYOND: Final = 1 << 63
"""From here on an option takes no whole number; PostgreSQL reads every large double as one."""
_LONGEST_KEY: Final = 255
"""Bytes of a message id; the property takes no more (AMQP 0-9-1, 4.2.5.3)."""
_JSON: Final = ("application/json", "text/json")


class Problem(NamedTuple):
    """Why a delivery goes to the dead side: a code of docs/codes.md and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it came from a queue."""

    queue: str
    message_id: str
    """What tells it from others of its queue: `x-relay-id`, else the property `message_id`, else a name of this delivery alone."""
    exchange: str
    routing_key: str
    payload: bytes
    content: str | None
    """The payload where it is JSON that PostgreSQL can store."""
    options: str
    problem: Problem | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in memory."""
        return KEPT + len(self.payload) + sum(map(of_text, (self.content, self.options, self.message_id, self.exchange, self.routing_key)))


def delivery(
    *, queue: str, exchange: str, routing_key: str, payload: bytes, properties: Mapping[str, Any], max_body_bytes: int
) -> Delivery:
    """Make a delivery of what the broker sent; never raises for what stands in it.

    Args:
        queue: where it was consumed.
        exchange: where it was published.
        routing_key: by what it was routed.
        payload: its body.
        properties: by their AMQP names with `_`; those that were not set are None. The timestamp is the number that was sent.
        max_body_bytes: limit of a payload.
    """
    message_id = _message_id(properties.get("headers") or {}, properties.get("message_id"))
    options, problem = _options(properties)
    if "\0" in exchange + routing_key:
        problem = Problem("text_invalid", "The exchange or the routing key holds a NUL character, which PostgreSQL cannot store.")
        exchange, routing_key = exchange.replace("\0", "\ufffd"), routing_key.replace("\0", "\ufffd")
    content = None
    if len(payload) > max_body_bytes:
        problem = Problem(
            "body_too_large", f"The payload is {len(payload)} bytes long; the limit is {max_body_bytes} bytes (max_body_bytes)."
        )
    elif says_json(properties) and problem is None:
        content, problem = _content(payload)
    return Delivery(queue, message_id, exchange, routing_key, payload, content, options, problem)


def unreadable(*, queue: str, names: tuple[str, str], header: bytes, payload: bytes, error: Exception) -> Delivery:
    """A delivery whose names or properties cannot be read: what it holds tells it from others, since it has no id that could be."""
    sentence = f"The names or the properties of the message cannot be read ({type(error).__name__})."
    exchange, routing_key = (name.replace("\0", "\ufffd") for name in names)
    digest = sha256(b"\0".join((*(name.encode() for name in names), header, payload))).hexdigest()
    return Delivery(queue, f"sha256:{digest}", exchange, routing_key, payload, None, "{}", Problem("properties_invalid", sentence))


def _message_id(headers: Mapping[str, Any], message_id: str | None) -> str:
    """The relay's own header before the property, which an application may set as it likes."""
    for given in (headers.get(RELAY_ID), message_id):
        if isinstance(given, str) and given and len(given.encode()) <= _LONGEST_KEY and "\0" not in given:
            return given
    # Nobody can tell another delivery of it from another message; but a write that is tried again must know its own.
    return f"delivery:{uuid4()}"


def _options(properties: Mapping[str, Any]) -> tuple[str, Problem | None]:
    given = {name: _plain(value) for name, value in properties.items() if value not in (None, {}) and name in _NAMES}
    if given.get("timestamp") and properties["timestamp"] > TIMESTAMP_LIMIT:
        given["headers"] = {**given.get("headers", {}), TIMESTAMP: given.pop("timestamp")}
    try:
        return json_text(given, "The properties"), None
    except ValueError as error:
        return "{}", Problem("option_type", f"{error}.")


_NAMES: Final = frozenset((
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration", "message_id",
    "timestamp", "type", "user_id", "app_id",
))  # fmt: skip
"""What an outbox knows too; `cluster_id` is the broker's own."""


def _plain(value: Any) -> Any:
    """A field value as `jsonb` has it: times in ISO 8601; decimals, numbers that it does not have, and bytes that are no text as text."""
    match value:
        case dict():
            return {name.replace("\0", "\ufffd"): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case datetime():
            return value.isoformat()
        case str() | bytes():
            return _text(value if isinstance(value, bytes) else value.encode())
        case None | bool():
            return value
    return _number(value)


def _number(value: float | Decimal) -> float | str:
    if isinstance(value, Decimal):
        return str(value)
    if not isfinite(value):
        return "NaN" if isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value if -_BEYOND <= value < _BEYOND else str(value)


def _text(octets: bytes) -> str:
    """Text that PostgreSQL can hold as it is; all else as base64."""
    try:
        return octets.decode() if b"\0" not in octets else _base64(octets)
    except UnicodeDecodeError:
        return _base64(octets)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def says_json(properties: Mapping[str, Any]) -> bool:
    """Whether a payload of these properties is JSON as it stands."""
    kind = str(properties.get("content_type") or "").partition(";")[0].strip().lower()
    return (kind in _JSON or kind.endswith("+json")) and not properties.get("content_encoding")


def _content(payload: bytes) -> tuple[str | None, Problem | None]:
    """JSON text for `content`; None where it is JSON that PostgreSQL cannot store, which stays a body; or what is wrong with it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None, Problem("content_invalid", "The payload says it is JSON and is not valid UTF-8.")
    try:
        return content_text(JsonText(text)), None
    except ValueError as error:
        if _is_json(text):
            return None, None
        return None, Problem("content_invalid", f"The payload says it is JSON: {error}.")


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity, which Python alone takes for JSON


def _is_json(text: str) -> bool:
    """Whether it is JSON all the same, but holds what PostgreSQL cannot: a NUL, half of a surrogate pair, very deep nesting."""
    try:
        walk_json(text, _no_constant)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
