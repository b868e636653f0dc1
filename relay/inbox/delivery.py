"""A delivery from a queue as the inbox stores it, or the reason why it cannot be stored. No I/O.

A payload with a content type of JSON becomes `content`; any other payload is stored unchanged in `body`. Properties become `options`,
under the names that an outbox uses.
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

from relay.client.message import HEADERS_LIMIT, JsonText, content_text
from relay.codec.json_text import json_text, sorts_slowly, walk_json
from relay.codec.option_rules import TIMESTAMP_LIMIT, OptionsError
from relay.codec.options import plan
from relay.memory import KEPT, of_text

RELAY_ID: Final = "x-relay-id"
TIMESTAMP: Final = "x-relay-timestamp"
"""Header for a property `timestamp` beyond the year 9999, for example a timestamp in milliseconds."""
_TOO_LARGE: Final = 1 << 63
"""Numbers from this one on are stored as text: an option allows no larger integer, and PostgreSQL reads a large double as an integer."""
_MAX_ID_BYTES: Final = 255
"""Bytes of a message id: the property's limit (AMQP 0-9-1, 4.2.5.3)."""
_JSON: Final = ("application/json", "text/json")


class Problem(NamedTuple):
    """Why a delivery is archived as rejected: a code of docs/codes.md and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it arrived from a queue."""

    queue: str
    message_id: str
    """Identifies the message within its queue: `x-relay-id`, else the property `message_id`, else a new unique id."""
    exchange: str
    routing_key: str
    payload: bytes
    content: str | None
    """The payload, if it is JSON that PostgreSQL can store."""
    options: str
    problem: Problem | None = None

    @property
    def size(self) -> int:
        """Bytes that the delivery takes in memory."""
        return KEPT + len(self.payload) + sum(map(of_text, (self.content, self.options, self.message_id, self.exchange, self.routing_key)))


def delivery(
    *, queue: str, exchange: str, routing_key: str, payload: bytes, properties: Mapping[str, Any], max_body_bytes: int
) -> Delivery:
    """Make a delivery of the broker's message; never raises, whatever the content.

    Args:
        queue: the queue from which the message was consumed.
        exchange: the exchange to which it was published.
        routing_key: the routing key with which it was published.
        payload: the body of the message.
        properties: values by their AMQP names with `_`; unset properties are None. The timestamp is the number that was sent.
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
    elif declares_json(properties) and problem is None:
        content, problem = _content(payload)
    return Delivery(queue, message_id, exchange, routing_key, payload, content, options, problem)


def refusal(delivery: Delivery) -> Problem | None:
    """Why the table will refuse the options, in the table's words; None if it accepts them. This takes about as long as `delivery`."""
    try:
        plan(delivery.options, HEADERS_LIMIT)
    except OptionsError as error:
        return Problem("row_refused", f"PostgreSQL refuses it: {error.sentence}.")
    return None


def unreadable(*, queue: str, names: tuple[str, str], header: bytes, payload: bytes, error: Exception) -> Delivery:
    """A delivery with unreadable names or properties: because its id cannot be read, a hash of its content identifies it."""
    sentence = f"The names or the properties of the message cannot be read ({type(error).__name__})."
    exchange, routing_key = (name.replace("\0", "\ufffd") for name in names)
    digest = sha256(b"\0".join((*(name.encode() for name in names), header, payload))).hexdigest()
    return Delivery(queue, f"sha256:{digest}", exchange, routing_key, payload, None, "{}", Problem("properties_invalid", sentence))


def _message_id(headers: Mapping[str, Any], message_id: str | None) -> str:
    """The id for deduplication. The relay's header comes first, because an application may set the property as it likes."""
    for given in (headers.get(RELAY_ID), message_id):
        if isinstance(given, str) and given and len(given.encode()) <= _MAX_ID_BYTES and "\0" not in given:
            return given
    # Without an id a redelivery looks like another message. But a repeated write must recognize its own delivery.
    return f"delivery:{uuid4()}"


def _options(properties: Mapping[str, Any]) -> tuple[str, Problem | None]:
    given = {name: _json_value(value) for name, value in properties.items() if value not in (None, {}) and name in _NAMES}
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
"""Properties that an outbox has too; the property `cluster_id` belongs to the broker."""


def _json_value(value: Any) -> Any:
    """A field value for `jsonb`: times in ISO 8601; decimals, numbers without a JSON form and binary data as text."""
    match value:
        case dict():
            return {name.replace("\0", "\ufffd"): _json_value(each) for name, each in value.items()}
        case list():
            return [_json_value(each) for each in value]
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
    return value if -_TOO_LARGE <= value < _TOO_LARGE else str(value)


def _text(octets: bytes) -> str:
    """Text that PostgreSQL can store unchanged; anything else as base64."""
    try:
        return octets.decode() if b"\0" not in octets else _base64(octets)
    except UnicodeDecodeError:
        return _base64(octets)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def declares_json(properties: Mapping[str, Any]) -> bool:
    """Whether the properties declare the payload to be JSON that is not encoded further."""
    kind = str(properties.get("content_type") or "").partition(";")[0].strip().lower()
    return (kind in _JSON or kind.endswith("+json")) and not properties.get("content_encoding")


def _content(payload: bytes) -> tuple[str | None, Problem | None]:
    """JSON text for `content`, or the problem. JSON that PostgreSQL cannot store, or only slowly, stays in `body`: then both are None."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None, Problem("content_invalid", "The payload says it is JSON and is not valid UTF-8.")
    try:
        content = content_text(JsonText(text), quick=True)
    except ValueError as error:
        if _is_json(text):
            return None, None
        return None, Problem("content_invalid", f"The payload says it is JSON: {error}.")
    return None if sorts_slowly(text) else content, None


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity: Python accepts them, JSON does not


def _is_json(text: str) -> bool:
    """Whether the text is JSON that PostgreSQL cannot store: with a NUL, a lone surrogate or very deep nesting."""
    try:
        walk_json(text, _no_constant)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
