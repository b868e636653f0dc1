"""How much a schema may ask of one value, whatever that is: schemas that double at each of their references are refused. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

HEAVIEST: Final = 1_000_000
"""Schemas that stand below one, each counted as often as a reference leads to it: some tens of milliseconds for one value."""
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords that hold values of any form."""
_ASIDE: Final = frozenset({"$defs", "definitions"})
"""Keywords whose schemas count where something refers to them."""


def weight(document: Any, cost: Callable[[Mapping[str, Any]], int] = lambda _: 0) -> int:
    """Schemas that one value may have to be checked against; a reference back to what is being counted is 1: a validator remembers it.

    Args:
        document: the schema.
        cost: what one object counts beside the 1 of its own, without what stands below it.

    Raises:
        RecursionError: it nests too deep, or refers to itself over too many steps.
    """
    return _Scale(document, cost).of(document)


class _Scale:
    def __init__(self, document: Any, cost: Callable[[Mapping[str, Any]], int]) -> None:
        self._document = document
        self._cost = cost
        self._known: dict[int, int] = {}
        self._anchors = {f"#{name}": found for found in objects(document) for name in _names(found)}

    def of(self, schema: Any) -> int:
        if not isinstance(schema, Mapping | list):
            return 1
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = 1
            own = self._cost(schema) if isinstance(schema, Mapping) else 0
            known = self._known[id(schema)] = 1 + own + sum(map(self.of, self._below(schema)))
        return known

    def _below(self, schema: Mapping[str, Any] | list[Any]) -> Iterator[Any]:
        if isinstance(schema, list):
            yield from schema
            return
        for name, value in schema.items():
            if name in {"$ref", "$dynamicRef"} and isinstance(value, str):
                yield self._target(value)
            elif name not in _NO_SCHEMAS | _ASIDE and isinstance(value, Mapping | list):
                yield value

    def _target(self, reference: str) -> Any:
        found = self._anchors.get(reference)
        return found if found is not None else resolved(self._document, reference)


def resolved(document: Any, reference: str) -> Any:
    """What a reference by JSON pointer (`#/$defs/order`) names within a document, None if it is none or names nothing."""
    path = steps(reference)
    return None if path is None else at(document, path)


def steps(reference: str) -> tuple[str, ...] | None:
    """The steps of a reference by JSON pointer, None for one of another kind."""
    if reference == "#":
        return ()
    if not reference.startswith("#/") or "%" in reference:
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in reference[2:].split("/"))


def at(document: Any, path: tuple[str, ...]) -> Any:
    """What stands in a document at a place, None if nothing does."""
    found = document
    for step in path:
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list):
            found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
        else:
            return None
    return found


def objects(document: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of a document, itself included."""
    left = [document]
    while left:
        found = left.pop()
        if isinstance(found, Mapping):
            yield found
            left += found.values()
        elif isinstance(found, list):
            left += found


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := schema.get(keyword), str):
            yield name
