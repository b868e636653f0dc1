"""Computes the cost of a schema for one value, so that schemas that grow exponentially by references can be refused. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from relay.contracts.references import DEFINITIONS, SINGLE, References, below

MAX_WEIGHT: Final = 1_000_000
"""The most subschemas, each counted once for each reference to it.

With this number, the check of one value takes some tens of milliseconds.
"""
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords with values of any form, which are not schemas."""


def weight(document: Any, cost: Callable[[Mapping[str, Any]], int] = lambda _: 0) -> int:
    """The number of schemas against which one value may be checked.

    A recursive reference counts 1, because a validator remembers the target.

    Args:
        document: the schema.
        cost: what one object counts in addition to 1, without its subschemas.

    Raises:
        RecursionError: the schema is nested too deeply, or refers to itself over too many steps.
        UnclearReferenceError: a reference leads to no place or to several places in the schema.
    """
    return _Counter(document, cost).of(document)


class _Counter:
    def __init__(self, document: Any, cost: Callable[[Mapping[str, Any]], int]) -> None:
        self._references = References(document)
        self._cost = cost
        self._known: dict[int, int] = {}

    def of(self, schema: Any) -> int:
        if not isinstance(schema, Mapping):
            return 1
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = 1
            known = self._known[id(schema)] = 1 + self._cost(schema) + _count_names(schema) + sum(map(self.of, self._below(schema)))
        return known

    def _below(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        yield from below(schema)
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(reference := schema.get(keyword), str):
                yield self._references.target(schema, reference)


def _count_names(schema: Mapping[str, Any]) -> int:
    """The number of keywords with several values, plus the number of names in these values."""
    others = _NO_SCHEMAS | DEFINITIONS | SINGLE
    several = [value for name, value in schema.items() if name not in others and isinstance(value, list | Mapping)]
    return len(several) + sum(sum(1 for _ in _names(value)) for value in several)


def _names(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else value.values():
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            yield from _names(each)
