"""Decides which contents are checked in the relay's own process, by the longest time that a check under a schema can take. No I/O."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from relay.contracts.schema_cost import weight

MAX_INLINE_BYTES: Final = 65_536
"""The most bytes of a content that the relay itself checks under a simple schema; the child process checks larger contents."""
_SIMPLE: Final = 33
"""The highest effort of a simple schema: the worst content of 64 KiB takes 30 ms."""
_EXPLAIN_DIVISOR: Final = 64
"""An explanation checks a content once at each of at most 200 levels, so its limit in bytes is smaller by this factor."""
_HOSTILE: Final = 1_100
"""Effort of a rule that a content can make slow. 64 KiB under one such rule take, on 2 cores: 0.8 s by `multipleOf`, 2.6 s by
`uniqueItems`, 5.3 s by a pattern with look-around (docs/decisions/0049)."""
_COMPARED: Final = 15
"""Effort of comparing each value with a fraction, an array or an object; numbers are compared as exact fractions."""
_LARGE: Final = 5
"""Effort of comparing with an integer of more than 63 bits."""
_INTEGER: Final = 2
"""Effort of comparing with any other integer."""
_TEXTS_PER_EFFORT: Final = 64
"""How many texts of a mixed `enum` count as an effort of one; an `enum` with only texts is searched by hash."""
_PATTERN: Final = 3
"""Effort of one regular expression that is matched against every name of an object."""
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LINEAR: Final = re.compile(
    r"(?:[^\\(]|\\[^A-Za-z0-9]|\\[AbBdDfnprPsStuvwWxz]|\((?!\?)|\(\?(?::|P?<[A-Za-z_]|[imsu-]+[:)]))*",
)
"""Regular expressions that are known to take linear time."""
_POSSESSIVE: Final = re.compile(r"[*+?}]\+")
"""Possessive quantifiers; the library emulates them by backtracking."""


def effort(document: Any) -> int:
    """The highest effort of a schema for each byte of a content; a rule counts once for each reference to it."""
    return weight(document, _effort)


def inline_bytes(together: int) -> int:
    """The most bytes of a content that is checked inline against schemas of this total effort."""
    return MAX_INLINE_BYTES * _SIMPLE // max(_SIMPLE, together)


def explained_bytes(together: int) -> int:
    """The most bytes of a content whose violation is also explained inline."""
    return inline_bytes(together) // _EXPLAIN_DIVISOR


def _effort(schema: Mapping[str, Any]) -> int:
    """The effort of one schema's own rules, without its subschemas."""
    hostile = backtracks(schema.get("pattern")) + isinstance(schema.get("multipleOf"), int | float) + (schema.get("uniqueItems") is True)
    hostile += schema.get("format") == "regex"
    bounds = sum(_compared(schema[name]) for name in _BOUNDS if isinstance(schema.get(name), int | float))
    return _HOSTILE * hostile + bounds + _allowed(schema) + _patterns(schema.get("patternProperties"))


def _allowed(schema: Mapping[str, Any]) -> int:
    allowed = schema.get("enum")
    values = [*(allowed if isinstance(allowed, list) else ()), schema.get("const")]
    return sum(map(_compared, values)) + len(values) // _TEXTS_PER_EFFORT * (not all(isinstance(value, str) for value in values[:-1]))


def _compared(value: Any) -> int:
    if isinstance(value, list | Mapping | float):
        return _COMPARED
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return _INTEGER if abs(value) <= sys.maxsize else _LARGE


def _patterns(named: Any) -> int:
    return sum(_HOSTILE if backtracks(pattern) else _PATTERN for pattern in named) if isinstance(named, Mapping) else 0


def backtracks(pattern: Any) -> bool:
    """Whether a regular expression may backtrack."""
    return isinstance(pattern, str) and not (_LINEAR.fullmatch(pattern) and not _POSSESSIVE.search(pattern))
