"""Compares a value with an expected value; of objects only the expected keys are compared, recursively. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(expected: Any, there: Any, place: str) -> str | None:
    """The first difference as a phrase, or None. Further keys of a mapping are ignored, further items of a list are not."""
    if isinstance(expected, Mapping) and isinstance(there, Mapping):
        found = (_within(name, value, there, f"{place}[{name!r}]") for name, value in expected.items())
        return next((one for one in found if one is not None), None)
    if isinstance(expected, list) and isinstance(there, list):
        if len(expected) != len(there):
            return f"{place}: {len(there)} items are there, {len(expected)} were expected."
        found_in = (difference(value, there[at], f"{place}[{at}]") for at, value in enumerate(expected))
        return next((one for one in found_in if one is not None), None)
    # In JSON true and 1 differ, in Python they are equal.
    mixed = isinstance(expected, int) and isinstance(there, int) and isinstance(expected, bool) != isinstance(there, bool)
    if expected == there and not mixed:
        return None
    return f"{place}: {there!r} is there, {expected!r} was expected."


def _within(name: Any, expected: Any, there: Mapping[Any, Any], place: str) -> str | None:
    return difference(expected, there[name], place) if name in there else f"{place}: it is not there, {expected!r} was expected."
