"""Which contents are checked between other work, by how long the worst of them takes under a schema. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from relay.contracts.weight import objects

LARGEST: Final = 65_536
"""Bytes of a content that the relay checks itself where the schema is a plain one; larger ones go to the process beside it."""
_PLAIN: Final = 33
"""Effort up to which a schema is plain: 64 KiB take 30 ms at the most, whatever stands in them."""
_EXPLAINED: Final = 64
"""What is explained between other work has this part of the bytes: an explanation checks a content once at each level, of at most 200."""
_HOSTILE: Final = 1_100
"""Effort of a rule that a content can make slow. Of 64 KiB under one such rule, on 2 cores: 0.8 s by `multipleOf`, 2.6 s by `uniqueItems`,
5.3 s by a pattern with look-around (docs/decisions/0049)."""
_COMPARED: Final = 11
"""Effort of one value of an `enum` that is an array or an object: each is compared with each value that is checked."""
_PATTERN: Final = 3
"""Effort of one regular expression that every name of an object is tried against."""
_STEPS_BACK: Final = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9]|\\[kg]")
"""Look-around, atomic groups and references back, which do not take time in proportion to the text."""


def effort(document: Any, weight: int) -> int:
    """What a schema of this weight (`relay.contracts.weight`) asks for each byte of a content, at the most."""
    return weight + sum(_efforts(document))


def inline_bytes(together: int) -> int:
    """Bytes up to which a content is checked between other work, against schemas of this effort together."""
    return LARGEST * _PLAIN // max(_PLAIN, together)


def explained_bytes(together: int) -> int:
    """Bytes up to which it is also looked for there where a content breaks them."""
    return inline_bytes(together) // _EXPLAINED


def _efforts(document: Any) -> Iterator[int]:
    for schema in objects(document):
        yield _HOSTILE * (_steps_back(schema.get("pattern")) + ("multipleOf" in schema) + (schema.get("uniqueItems") is True))
        yield _COMPARED * sum(isinstance(value, list | Mapping) for value in _values(schema))
        if isinstance(named := schema.get("patternProperties"), Mapping):
            yield sum(_HOSTILE if _steps_back(pattern) else _PATTERN for pattern in named)


def _values(schema: Mapping[str, Any]) -> list[Any]:
    allowed = schema.get("enum")
    return [*(allowed if isinstance(allowed, list) else ()), schema.get("const")]


def _steps_back(pattern: Any) -> bool:
    return isinstance(pattern, str) and _STEPS_BACK.search(pattern) is not None
