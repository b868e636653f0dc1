"""Which contents are checked between other work, by how long the worst of them takes under a schema. No I/O."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from relay.contracts.schema_cost import weight

LARGEST: Final = 65_536
"""Bytes of a content that the relay checks itself where the schema is a plain one; larger ones go to the process beside it."""
_PLAIN: Final = 33
"""Effort up to which a schema is plain: 64 KiB take 30 ms at the most, whatever stands in them."""
_EXPLAINED: Final = 64
"""What is explained between other work has this part of the bytes: an explanation checks a content once at each level, of at most 200."""
_HOSTILE: Final = 1_100
"""Effort of a rule that a content can make slow. Of 64 KiB under one such rule, on 2 cores: 0.8 s by `multipleOf`, 2.6 s by `uniqueItems`,
5.3 s by a pattern with look-around (docs/decisions/0049)."""
_COMPARED: Final = 15
"""Effort of a fraction, an array or an object that each value is compared with: numbers are compared as exact fractions."""
_LARGE: Final = 5
"""The same of an integer of more than 63 bits."""
_INTEGER: Final = 2
"""The same of any other."""
_SKIPPED: Final = 64
"""Texts and names of an `enum` that also holds other things, for one effort; where it holds nothing else they are found by their hash."""
_PATTERN: Final = 3
"""Effort of one regular expression that every name of an object is tried against."""
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_STRAIGHT: Final = re.compile(
    r"(?:[^\\(]|\\[^A-Za-z0-9]|\\[AbBdDfnprPsStuvwWxz]|\((?!\?)|\(\?(?::|P?<[A-Za-z_]|[imsu-]+[:)]))*",
)
"""Regular expressions that take time in proportion to the text: nothing but what is known to."""
_POSSESSIVE: Final = re.compile(r"[*+?}]\+")
"""Quantifiers that give nothing back; they take steps back to find that out."""


def effort(document: Any) -> int:
    """What a schema asks for each byte of a content, at the most; each rule counts as often as a reference leads to it."""
    return weight(document, _effort)


def inline_bytes(together: int) -> int:
    """Bytes up to which a content is checked between other work, against schemas of this effort together."""
    return LARGEST * _PLAIN // max(_PLAIN, together)


def explained_bytes(together: int) -> int:
    """Bytes up to which it is also looked for there where a content breaks them."""
    return inline_bytes(together) // _EXPLAINED


def _effort(schema: Mapping[str, Any]) -> int:
    """What the rules of one schema ask for, without those below it."""
    hostile = _steps_back(schema.get("pattern")) + isinstance(schema.get("multipleOf"), int | float) + (schema.get("uniqueItems") is True)
    hostile += schema.get("format") == "regex"
    bounds = sum(_compared(schema[name]) for name in _BOUNDS if isinstance(schema.get(name), int | float))
    return _HOSTILE * hostile + bounds + _allowed(schema) + _patterns(schema.get("patternProperties"))


def _allowed(schema: Mapping[str, Any]) -> int:
    allowed = schema.get("enum")
    values = [*(allowed if isinstance(allowed, list) else ()), schema.get("const")]
    return sum(map(_compared, values)) + len(values) // _SKIPPED * (not all(isinstance(value, str) for value in values[:-1]))


def _compared(value: Any) -> int:
    if isinstance(value, list | Mapping | float):
        return _COMPARED
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return _INTEGER if abs(value) <= sys.maxsize else _LARGE


def _patterns(named: Any) -> int:
    return sum(_HOSTILE if _steps_back(pattern) else _PATTERN for pattern in named) if isinstance(named, Mapping) else 0


def _steps_back(pattern: Any) -> bool:
    return isinstance(pattern, str) and not (_STRAIGHT.fullmatch(pattern) and not _POSSESSIVE.search(pattern))
