"""How much a schema may ask of one value, whatever that is: schemas that double at each of their references are refused. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from relay.contracts.references import DEFINITIONS, SINGLE, References, below

HEAVIEST: Final = 1_000_000
"""Schemas that stand below one, each counted as often as a reference leads to it: some tens of milliseconds for one value."""
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords that hold values of any form."""


def weight(document: Any, cost: Callable[[Mapping[str, Any]], int] = lambda _: 0) -> int:
    """Schemas that one value may have to be checked against; a reference back to what is being counted is 1: a validator remembers it.

    Args:
        document: the schema.
        cost: what one object counts beside the 1 of its own, without what stands below it.

    Raises:
        RecursionError: it nests too deep, or refers to itself over too many steps.
        UnclearReferenceError: a reference leads to nothing in it, or to more than one place.
    """
    return _Scale(document, cost).of(document)


class _Scale:
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
            known = self._known[id(schema)] = 1 + self._cost(schema) + _named(schema) + sum(map(self.of, self._below(schema)))
        return known

    def _below(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        yield from below(schema)
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(reference := schema.get(keyword), str):
                yield self._references.target(schema, reference)


def _named(schema: Mapping[str, Any]) -> int:
    """Keywords that hold several things, and the names that they hold."""
    others = _NO_SCHEMAS | DEFINITIONS | SINGLE
    several = [value for name, value in schema.items() if name not in others and isinstance(value, list | Mapping)]
    return len(several) + sum(sum(1 for _ in _names(value)) for value in several)


def _names(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else value.values():
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            yield from _names(each)
