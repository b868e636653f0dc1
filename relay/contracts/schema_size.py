"""Estimates the memory of a compiled schema from its text and its regular expressions. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from relay.contracts.check_time import backtracks

MAX_SIZE: Final = 32 << 20
"""The most bytes that one compiled schema may take. The compilation of a schema of this size stalls a relay for less than a second."""
MAX_PATTERN: Final = 8 << 20
"""The most bytes that one compiled regular expression may take."""
_RUNGS: Final = (8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, MAX_PATTERN)
"""The limits that are tried to find an expression's size, because the library says only whether an expression is larger than a limit."""
_PER_BYTE: Final = 96
"""Bytes for each byte of a schema's text. Measured: 109 by `{"not": {}}` 16,000 times, 70 by `true`, 46 by small properties."""
_KNOWN: Final = 16_384
"""How many regular expressions have their size cached."""


class WrongPatternError(Exception):
    """The argument is not a regular expression, or a larger one than is allowed."""


def schema_size(text_bytes: int, patterns: Iterable[str]) -> int:
    """The most bytes that a schema with these regular expressions takes; the counting stops above `MAX_SIZE`.

    Raises:
        WrongPatternError: a regular expression cannot be compiled.
    """
    size = _PER_BYTE * text_bytes
    for pattern in patterns:
        if size > MAX_SIZE:
            break
        size += _pattern_size(pattern)
    return size


def patterns_of(schema: Mapping[str, Any]) -> list[str]:
    """The regular expressions of one schema, without its subschemas."""
    pattern, named = schema.get("pattern"), schema.get("patternProperties")
    return [pattern] * isinstance(pattern, str) + list(named if isinstance(named, Mapping) else ())


@lru_cache(maxsize=_KNOWN)
def _pattern_size(pattern: str) -> int:
    # Look-around and similar features divide an expression into pieces, and the library limits each piece separately.
    pieces = 1 + 2 * sum(map(pattern.count, "(\\+")) if backtracks(pattern) else 1
    for rung in _RUNGS:
        if _fits(pattern, rung):
            return pieces * rung
    raise WrongPatternError(pattern)


def _fits(pattern: str, limit: int) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.FancyRegexOptions(size_limit=limit))
    except ValueError:
        return False
    return True
