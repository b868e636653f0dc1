"""Resolves the references of a schema as the validator does: by pointer, anchor and address. No I/O, and nothing is fetched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

_BASE: Final = "https://contract.invalid/"
"""The address of a schema without `$id`."""
_PLAIN: Final = re.compile(r"(?!.*/\.)(?:[a-z][a-z0-9+.-]*:)?(?://[a-z0-9.-]+)?[A-Za-z0-9_/.:~-]*", re.ASCII)
"""Addresses that all libraries resolve and compare in the same way."""
_ABSOLUTE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
SINGLE: Final = frozenset(
    {
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
"""Keywords whose value is one schema."""
_SEVERAL: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"dependencies", "dependentSchemas", "patternProperties", "properties"})
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords whose schemas apply only where a reference leads to them."""


class UnclearReferenceError(Exception):
    """A reference leads to no place or to several places in the schema; the argument is the reference."""


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
        """The target of a reference in a schema.

        Raises:
            UnclearReferenceError: the target is missing or not unique.
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
                base = self._base_of(schema, base)
                self._bases[id(schema)] = base
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := schema.get(keyword), str):
                        self._anchors.setdefault((base, name), []).append(schema)
                        self._dynamic[name] += keyword == "$dynamicAnchor"
                left += [(below, base) for below in below(schema, definitions=True)]

    def _base_of(self, schema: Mapping[str, Any], base: str) -> str:
        address = schema.get("$id")
        named = address.partition("#")[0] if isinstance(address, str) else ""
        if not named:
            return base
        base = _joined(base, named)
        self._resources.setdefault(base, []).append(schema)
        return base

    def _add_unlisted(self, schema: Mapping[str, Any], base: str, reference: str) -> None:
        """Add a schema in an unknown keyword. Addresses and anchors in such a schema are undefined, so they are refused."""
        if any(isinstance(found.get(name), str) for found in objects(schema) for name in ("$id", "$anchor", "$dynamicAnchor")):
            raise UnclearReferenceError(reference)
        self._add(schema, base)


def below(schema: Mapping[str, Any], *, definitions: bool = False) -> Iterator[Any]:
    """The direct subschemas; with `definitions` also those that apply only by reference."""
    for keyword, value in schema.items():
        if keyword in SINGLE:
            yield value
        elif keyword in _SEVERAL and isinstance(value, list):
            yield from value
        elif (keyword in _NAMED or (definitions and keyword in DEFINITIONS)) and isinstance(value, Mapping):
            yield from value.values()


def resolved(document: Any, reference: str) -> Any:
    """The target of a JSON pointer reference within a document; None for another kind of reference or a missing target."""
    path = steps(reference)
    return None if path is None else at(document, path)


def steps(reference: str) -> tuple[str, ...] | None:
    """The steps of a JSON pointer reference (`#/$defs/order`); None for another kind of reference."""
    if reference == "#":
        return ()
    return _steps(reference[1:]) if reference.startswith("#/") else None


def at(document: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of a document; None if the path does not exist."""
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
    """Every object in a document, including itself."""
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
