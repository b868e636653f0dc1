"""What a handler returned, as the row of its request takes it; no I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from relay.codec.json_text import json_text
from relay.message import Claim
from relay.worker.outcomes import Reject

HEADER: Final = "x-relay-request"
"""Of a message that a request's row has made; which row that is only the database knows."""
_NAMED: Final = f'"{HEADER}"'.encode()
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""What a text of PostgreSQL cannot hold: NUL, and half of a surrogate pair."""


class HandlerResponse(NamedTuple):
    """Values by answer column."""

    text: str | None
    """A JSON object, bytes in it as `bytea` is written; None where the handler returned no mapping."""
    binary: list[str]
    """Columns that were given as bytes."""


def is_request(claim: Claim) -> bool:
    """Whether a row may wait for its answer."""
    return claim.options is not None and _NAMED in claim.options


def answer_of(returned: object, *, most: int) -> HandlerResponse:
    """What a handler returned, ready to be written.

    A NUL or half of a surrogate pair within a text becomes U+FFFD; bytes stay what they are.

    Args:
        returned: by the handler; a mapping from columns to values, else it is no answer.
        most: bytes that all values may have together.

    Raises:
        Reject: it is too large, or nothing that JSON could say.
    """
    if not isinstance(returned, Mapping):
        return HandlerResponse(None, [])
    if not all(isinstance(name, str) for name in returned):
        raise Reject("The handler returned a mapping whose keys are no names of columns.", code="answer_unknown")
    binary = [name for name, value in returned.items() if isinstance(value, bytes | bytearray | memoryview)]
    size = sum(len(memoryview(returned[name]).cast("B")) for name in binary)
    if size > most:
        raise _too_large(size, most)
    text = _json({name: _plain(value) for name, value in returned.items() if name not in binary})
    size += len(text.encode())
    if size > most:
        raise _too_large(size, most)
    written = ", ".join(f'{_json(name)}: "\\\\x{bytes(returned[name]).hex()}"' for name in binary)
    return HandlerResponse("{" + ", ".join(filter(None, (text[1:-1], written))) + "}", binary)


def _too_large(size: int, most: int) -> Reject:
    sentence = f"The answer has {size} bytes, more than max_body_bytes ({most}): return less, or raise the limit."
    return Reject(sentence, code="answer_too_large")


def _json(value: object) -> str:
    try:
        return json_text(value, "The answer")
    except ValueError as error:
        raise Reject(f"{error}.", code="answer_refused") from None


def _plain(value: Any) -> Any:
    """The same with every text one that PostgreSQL can hold."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        # As JSON has none: the type of the column reads its text.
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
