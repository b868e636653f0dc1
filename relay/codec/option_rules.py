"""The publish options and their permitted values: the rules of docs/options.md.

`sql/0002_validity.sql` and its successors reach the same verdicts and refuse an INSERT with the same sentences.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

SHORT_LIMIT: Final = 255
"""Most bytes of a short string, the type of names and of every text property."""
EXPIRATION_LIMIT: Final = 4_294_967_295
"""Most milliseconds; for a larger number the broker closes the channel."""
TIMESTAMP_LIMIT: Final = 253_402_300_799
"""Seconds; the end of the year 9999, after which consumers fail to decode the message."""
LONGEST: Final = 8 << 20
"""Most bytes of options as JSON text: more than the largest headers take, even if all values are doubles written with all their zeros.
PostgreSQL stores some numbers in a few bytes that it prints in 16,000 bytes."""
REPLY_ADDRESS: Final = "amq.rabbitmq.reply-to."
"""The prefix of routing keys of RabbitMQ's direct reply-to. Exchange `''` reads the rest of the key as the address of a process: RabbitMQ
3.10 closes the connection over an invalid address."""
KEY_LIST: Final = f"a list of strings, each of at most 255 bytes, none beginning with {REPLY_ADDRESS}"
RESERVED_KEY: Final = (
    f"routing_key must not begin with {REPLY_ADDRESS}: RabbitMQ takes such a key for the address of a consumer, "
    "and closes the connection over one that is none"
)
_DIGITS_LIMIT: Final = 30
"""An integer with more digits than this is out of every range."""
_FIELDS: Final = (
    *("appId", "BCC", "CC", "contentEncoding", "contentType", "correlationId", "deliveryMode", "expiration", "headers"),
    *("immediate", "mandatory", "messageId", "persistent", "priority", "replyTo", "timestamp", "type", "userId"),
)


def _snake(name: str) -> str:
    return name.lower() if name.isupper() else re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


_NAMES: Final = {spelling: _snake(name) for name in _FIELDS for spelling in (name, _snake(name))}


def known_spellings() -> list[str]:
    """Return every name of an option, camelCase and snake_case."""
    return list(_NAMES)


class OptionsError(Exception):
    """The options can never be sent as they are."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def printable(text: str) -> str:
    """At most 64 characters of a foreign text, quoted and fit for a log line: no control characters, no escapes."""
    return '"' + re.sub("[^ -~]", "?", text[:64]) + '"'


def parse(text: str) -> dict[str, Any]:
    """The JSON object in `text`; integers keep their exact values.

    Raises:
        OptionsError: the text is no JSON object.
        RecursionError: the text is nested too deeply for the parser.
    """
    try:
        options = json.loads(text, parse_int=_integer, parse_constant=_constant)
    except ValueError:
        raise OptionsError("option_type", "options is not valid JSON") from None
    if not isinstance(options, dict):
        raise OptionsError("option_type", "options must be a JSON object")
    return options


def _integer(digits: str) -> int | float:
    # int() takes quadratic time, and raises a different error for thousands of digits.
    return int(digits) if len(digits) <= _DIGITS_LIMIT else math.inf


def _constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity, which Python accepts but JSON does not have


def collect(options: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """Check each option; return (spelling, value) for each snake-case name, without the nulls.

    Raises:
        OptionsError: an option is unknown, ill-typed, out of range, or given twice with different values.
        UnicodeEncodeError: a text holds a lone surrogate.
    """
    found: dict[str, tuple[str, Any]] = {}
    for spelling, value in options.items():
        name = _NAMES.get(spelling)
        if name is None:
            sentence = f"options has the unknown option {printable(spelling)}; known are {', '.join(_FIELDS)}, also in snake_case"
            raise OptionsError("option_unknown", sentence)
        if value is None:
            continue
        rule = _RULES[name]
        code = rule.check(value)
        if code:
            raise OptionsError(code, f"options.{spelling} must {rule.sentence}")
        if name in found and not _same(found[name][1], value):
            raise OptionsError("option_conflict", f"options.{spelling} and options.{found[name][0]} differ; give one of them")
        found[name] = (spelling, value)
    return found


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class _Rule(NamedTuple):
    sentence: str
    check: Callable[[Any], str]
    """Returns the error code for a value; empty if the value is valid."""


def _whole(value: Any, low: int, high: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "option_type"
    return "" if math.isfinite(value) and value == int(value) and low <= value <= high else "option_range"


def check_text(value: Any) -> str:
    """The error code for a value that must be a short string; empty if the value is valid."""
    if not isinstance(value, str):
        return "option_type"
    return "" if len(value.encode()) <= SHORT_LIMIT else "option_too_long"


def _check_flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "option_type"


def _check_keys(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return next((code for code in map(check_key, values) if code), "")


def check_key(value: Any) -> str:
    """The error code for a value that must be a routing key; empty if the value is valid."""
    return check_text(value) or ("reply_to_reserved" if value.startswith(REPLY_ADDRESS) else "")


def check_key_list(value: Any) -> str:
    """The error code for a value that must be a list of routing keys; empty if the value is valid."""
    return _check_keys(value) if isinstance(value, list) else "option_type"


def _check_expiration(value: Any) -> str:
    if not isinstance(value, str):
        return _whole(value, 0, EXPIRATION_LIMIT)
    return "" if re.fullmatch("[0-9]{1,20}", value) and int(value) <= EXPIRATION_LIMIT else "option_range"


def _check_delivery_mode(value: Any) -> str:
    # amqplib reads "2" and true as persistent. It would also read "1" as persistent, so "1" is refused.
    return "" if value is True or value == "2" else _whole(value, 1, 2)


def _check_reply_to(value: Any) -> str:
    # Direct reply-to needs a consumer on the publishing channel; without one the broker closes the channel.
    return "reply_to_reserved" if value == "amq.rabbitmq.reply-to" else check_text(value)


def _check_type(value: Any) -> str:
    # RabbitMQ reads the body of such a message as encoded AMQP 1.0; over any other body, a stream closes the whole connection.
    return "type_reserved" if value == "amqp-1.0" else check_text(value)


def _check_immediate(value: Any) -> str:
    return "immediate_unsupported" if value is True else _check_flag(value)


_TEXT = _Rule("be a string of at most 255 bytes", check_text)
_KEYS = _Rule(f"be a string or {KEY_LIST}", _check_keys)
_FLAG = _Rule("be true or false", _check_flag)
_RULES: Final = {
    **dict.fromkeys(("app_id", "content_encoding", "content_type", "correlation_id", "message_id", "user_id"), _TEXT),
    "bcc": _KEYS,
    "cc": _KEYS,
    "mandatory": _FLAG,
    "persistent": _FLAG,
    "delivery_mode": _Rule("be 1 (transient) or 2 (persistent)", _check_delivery_mode),
    "expiration": _Rule(f"be whole milliseconds from 0 to {EXPIRATION_LIMIT}, a number or a string of digits", _check_expiration),
    "headers": _Rule("be an object", lambda value: "" if isinstance(value, dict) else "option_type"),
    "immediate": _Rule("be false or left out: RabbitMQ does not implement it", _check_immediate),
    "priority": _Rule("be a whole number from 0 to 255", lambda value: _whole(value, 0, 255)),
    "reply_to": _Rule(
        "be a string of at most 255 bytes, not amq.rabbitmq.reply-to: it needs a consumer on the same channel", _check_reply_to
    ),
    "type": _Rule("be a string of at most 255 bytes, not amqp-1.0: RabbitMQ takes the body for encoded AMQP 1.0", _check_type),
    "timestamp": _Rule(f"be whole seconds since 1970, from 0 to {TIMESTAMP_LIMIT}", lambda value: _whole(value, 0, TIMESTAMP_LIMIT)),
}
