"""Where the references of a schema lead, as the validator reads them: by pointer, anchor and address. No I/O, and nothing is fetched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

_BASE: Final = "https://contract.invalid/"
"""Stands for the address of a schema that has none."""
_PLAIN: Final = re.compile(r"(?!.*/\.)(?:[a-z][a-z0-9+.-]*:)?(?://[a-z0-9.-]+)?[A-Za-z0-9_/.:~-]*", re.ASCII)
"""Addresses that mean the same to everybody who resolves and compares them."""
_ABSOLUTE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
SINGLE: Final = frozenset(
    {
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
"""Keywords that hold one schema."""
_SEVERAL: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"dependencies", "dependentSchemas", "patternProperties", "properties"})
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords whose schemas hold where something refers to them."""


class UnclearReferenceError(Exception):
    """A reference leads to nothing in the schema, or to more than one place; the argument is the reference."""


class References:
    """Addresses and anchors of one schema."""

    def __init__(self, document: Any) -> None:
        self._bases: dict[int, str] = {}
        self._resources: dict[str, list[Any]] = {}
        self._anchors: dict[tuple[str, str], list[Any]] = {}
        self._dynamic: Counter[str] = Counter()
        self._resources[_BASE] = [document]
        self._add(document, _BASE)

    def target(self, schema: Mapping[str, Any], reference: str) -> Any:
        """What a reference leads to that stands in a schema.

        Raises:
            UnclearReferenceError: it cannot be told.
        """
        address, _, fragment = reference.partition("#")
        base = self._bases[id(schema)]
        place = _joined(base, address) if address else base
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((place, fragment), []) if self._dynamic[fragment] <= 1 else []
        else:
            found = [resolved(root, f"#{fragment}") for root in self._resources.get(place, [])]
        if len(found) != 1 or found[0] is None:
            raise UnclearReferenceError(reference)
        if isinstance(found[0], Mapping) and id(found[0]) not in self._bases:
            self._add_unlisted(found[0], place, reference)
        return found[0]

    def _add(self, document: Any, base: str) -> None:
        left = [(document, base)]
        while left:
            schema, base = left.pop()
            if isinstance(schema, Mapping):
                base = self._based(schema, base)
                self._bases[id(schema)] = base
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := schema.get(keyword), str):
                        self._anchors.setdefault((base, name), []).append(schema)
                        self._dynamic[name] += keyword == "$dynamicAnchor"
                left += [(below, base) for below in below(schema, definitions=True)]

    def _based(self, schema: Mapping[str, Any], base: str) -> str:
        address = schema.get("$id")
        named = address.partition("#")[0] if isinstance(address, str) else ""
        if not named:
            return base
        base = _joined(base, named)
        self._resources.setdefault(base, []).append(schema)
        return base

    def _add_unlisted(self, schema: Mapping[str, Any], base: str, reference: str) -> None:
        """A schema where none stands by a keyword, such as in a keyword of one's own: addresses and anchors there are nobody's."""
        if any(isinstance(found.get(name), str) for found in objects(schema) for name in ("$id", "$anchor", "$dynamicAnchor")):
            raise UnclearReferenceError(reference)
        self._add(schema, base)


def below(schema: Mapping[str, Any], *, definitions: bool = False) -> Iterator[Any]:
    """Schemas that stand right below one, with those that hold only where something refers to them if so wanted."""
    for keyword, value in schema.items():
        if keyword in SINGLE:
            yield value
        elif keyword in _SEVERAL and isinstance(value, list):
            yield from value
        elif (keyword in _NAMED or (definitions and keyword in DEFINITIONS)) and isinstance(value, Mapping):
            yield from value.values()


def resolved(document: Any, reference: str) -> Any:
    """What a reference by JSON pointer names within a document, None if it is none or names nothing."""
    path = steps(reference)
    return None if path is None else at(document, path)


def steps(reference: str) -> tuple[str, ...] | None:
    """The steps of a reference by JSON pointer (`#/$defs/order`), None for one of another kind."""
    if reference == "#":
        return ()
    return _steps(reference[1:]) if reference.startswith("#/") else None


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


def _steps(pointer: str) -> tuple[str, ...] | None:
    try:
        decoded = unquote(pointer, errors="strict")
    except UnicodeDecodeError:
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in decoded.split("/")[1:])


def _joined(base: str, address: str) -> str:
    joined = urljoin(base, address)
    if not _PLAIN.fullmatch(address) or not _ABSOLUTE.match(joined):
        raise UnclearReferenceError(address)
    return joined
