"""Turns a handler's result into the answer columns of the request row. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from relay.codec.json_text import json_text
from relay.message import Claim
from relay.worker.outcomes import Reject

HEADER: Final = "x-relay-request"
"""Header of a message that was made from a request row; only the database knows which row."""
_HEADER_JSON: Final = f'"{HEADER}"'.encode()
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that PostgreSQL text cannot hold: NUL and lone surrogates."""


class HandlerResponse(NamedTuple):
    """An answer: values by column."""

    text: str | None
    """A JSON object with bytes in `bytea` notation; None if the handler returned no mapping."""
    binary: list[str]
    """Columns whose values are bytes."""


def is_request(claim: Claim) -> bool:
    """Whether a request row may wait for this message's answer."""
    return claim.options is not None and _HEADER_JSON in claim.options


def answer_of(returned: object, *, max_bytes: int) -> HandlerResponse:
    """The answer in a handler's result.

    In text, a NUL or a lone surrogate becomes U+FFFD; bytes are not changed.

    Args:
        returned: a mapping from columns to values; any other result is no answer.
        max_bytes: limit of all values together.

    Raises:
        Reject: the answer is too large, or JSON cannot express it.
    """
    if not isinstance(returned, Mapping):
        return HandlerResponse(None, [])
    if not all(isinstance(name, str) for name in returned):
        raise Reject("The handler returned a mapping whose keys are no names of columns.", code="answer_unknown")
    binary = [name for name, value in returned.items() if isinstance(value, bytes | bytearray | memoryview)]
    size = sum(len(memoryview(returned[name]).cast("B")) for name in binary)
    if size > max_bytes:
        raise _too_large(size, max_bytes)
    text = _json({name: _storable(value) for name, value in returned.items() if name not in binary})
    size += len(text.encode())
    if size > max_bytes:
        raise _too_large(size, max_bytes)
    binary_members = ", ".join(f'{_json(name)}: "\\\\x{bytes(returned[name]).hex()}"' for name in binary)
    return HandlerResponse("{" + ", ".join(filter(None, (text[1:-1], binary_members))) + "}", binary)


def _too_large(size: int, max_bytes: int) -> Reject:
    sentence = f"The answer has {size} bytes, more than max_body_bytes ({max_bytes}): return less, or raise the limit."
    return Reject(sentence, code="answer_too_large")


def _json(value: object) -> str:
    try:
        return json_text(value, "The answer")
    except ValueError as error:
        raise Reject(f"{error}.", code="answer_refused") from None


def _storable(value: Any) -> Any:
    """The value, changed so that PostgreSQL can store all text in it."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such number; the column's type reads the number from text.
        return str(value)
    if isinstance(value, Mapping):
        return {_storable(name): _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    return value
