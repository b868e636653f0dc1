"""Explains where and why a content breaks a schema: descends to the broken rule step by step, and shows no part of the content.

The validator's own report has a copy of the content for each alternative that was tried, so a large content could fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urljoin

import jsonschema_rs

from relay.codec.option_rules import printable
from relay.contracts.references import at, steps
from relay.contracts.schema_size import MAX_PATTERN

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_BASE: Final = "https://contract.invalid/"
"""The address of a schema without `$id`; nothing is fetched."""
_BACKTRACKS: Final = 10_000
"""The most backtracking steps of a regular expression in one text. Without look-around or back-references an expression takes none."""
_MAX_STEPS: Final = 500
"""The most steps down a schema and its references."""
_MAX_POINTER: Final = 200
_PLAIN: Final = (
    *("type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "dependentRequired"),
)
"""Rules that are checked one by one, and reported by name."""
_COMBINED: Final = (
    *("contains", "propertyNames", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$ref", "if"),
    *("allOf", "items", "properties"),
)
"""Rules that are reported only if no other rule explains the violation."""
_REASONS: Final[Mapping[str, str]] = {
    "type": "it is not of type {}", "enum": "it is none of the values that are allowed", "const": "it is not the one value that is allowed",
    "minimum": "it is less than {}", "maximum": "it is more than {}", "exclusiveMinimum": "it is not more than {}",
    "exclusiveMaximum": "it is not less than {}", "multipleOf": "it is no multiple of {}", "minLength": "it has fewer than {} characters",
    "maxLength": "it has more than {} characters", "pattern": "it does not match the pattern", "format": "it is no {}",
    "minItems": "it has fewer than {} items", "maxItems": "it has more than {} items", "uniqueItems": "two of its items are equal",
    "minProperties": "it has fewer than {} properties", "maxProperties": "it has more than {} properties",
    "dependentRequired": "a property is missing that another one asks for", "additionalProperties": "it has a property that is not named",
    "unevaluatedProperties": "it has a property that is not named", "anyOf": "it is none of the alternatives",
    "oneOf": "it is not exactly one of the alternatives", "not": "it is what it must not be", "false": "nothing may stand here",
}  # fmt: skip


class Violation(NamedTuple):
    """How a content breaks a schema, as printable text without any part of the content."""

    pointer: str
    """JSON pointer (RFC 6901) to the value; names unknown to the schema are shown as `*`."""
    rule: str
    """The keyword of the broken rule."""
    reason: str


class Step(NamedTuple):
    """A value, and the schema that applies to this value."""

    schema: Any
    path: tuple[str, ...]
    """Path of the schema in the document."""
    place: tuple[str, ...]
    """Path of the value in the content."""
    value: Any


def compile_schema(document: Any, registry: jsonschema_rs.Registry | None = None) -> jsonschema_rs.Validator:
    """A validator that checks formats, limits regular expressions and fetches nothing; raises the library's errors."""
    return jsonschema_rs.Draft202012Validator(
        document,
        validate_formats=True,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=MAX_PATTERN),
        registry=registry,
        offline=True,
    )


class Explainer:
    """Explains violations of one schema; the parts of the schema are compiled on first use."""

    def __init__(self, document: Any) -> None:
        self._document = document
        named = document.get("$id", "") if isinstance(document, Mapping) else ""
        self._base = urljoin(_BASE, named.partition("#")[0])
        self._registry = jsonschema_rs.Registry([(self._base, document)])
        self._validators: dict[tuple[object, ...], jsonschema_rs.Validator] = {}
        self._parts: dict[tuple[str, ...], jsonschema_rs.Validator] = {}

    def explain(self, value: Any) -> Violation:
        """The first rule that an invalid value breaks, from the top down."""
        found = Step(self._document, (), (), value)
        try:
            for _ in range(_MAX_STEPS):
                if rule := self._broken(found):
                    return _violation(found, *rule)
                below = next((step for step in self._below(found) if not self._valid(step)), None)
                if below is None:
                    break
                found = below
        except (ValueError, RecursionError):
            pass
        return _violation(found, self._combined_rule(found), None)

    def _broken(self, step: Step) -> tuple[str, Any] | None:
        """The broken rule of this schema itself, with the rule's value; None if all of these rules hold."""
        schema = step.schema
        if not isinstance(schema, Mapping):
            return ("false", None) if schema is False else None
        for rule in _PLAIN:
            if rule in schema and not self._rule(step, rule).is_valid(step.value):
                return rule, schema[rule]
        if schema.get("additionalProperties") is False and not self._names(step).is_valid(step.value):
            return "additionalProperties", None
        return next(((rule, None) for rule in ("anyOf", "oneOf", "not") if rule in schema and not self._combines(step, rule)), None)

    def _combines(self, step: Step, rule: str) -> bool:
        if rule == "not":
            return not self._valid(_deeper(step, rule))
        fit = sum(self._valid(_deeper(step, rule, str(index))) for index in range(len(step.schema[rule])))
        return fit == 1 if rule == "oneOf" else fit > 0

    def _below(self, step: Step) -> Iterator[Step]:
        """The next steps: other schemas for the same value, then schemas for its members."""
        schema = step.schema
        if not isinstance(schema, Mapping):
            return
        if (path := steps(schema.get("$ref", "-"))) is not None:
            yield Step(at(self._document, path), path, step.place, step.value)
        for index in range(len(schema.get("allOf", ()))):
            yield _deeper(step, "allOf", str(index))
        if "if" in schema and (branch := "then" if self._valid(_deeper(step, "if")) else "else") in schema:
            yield _deeper(step, branch)
        if isinstance(step.value, Mapping):
            yield from self._members(step)
        elif isinstance(step.value, list):
            yield from _items(step)

    def _members(self, step: Step) -> Iterator[Step]:
        schema, value = step.schema, step.value
        named = schema.get("properties", {})
        for name in named:
            if name in value:
                yield Step(named[name], (*step.path, "properties", name), (*step.place, name), value[name])
        for pattern, below in schema.get("patternProperties", {}).items():
            other = self._validator(("names", pattern), partial(_without_names_of, pattern))
            for name in value:
                if not other.is_valid({name: None}):
                    yield Step(below, (*step.path, "patternProperties", pattern), (*step.place, "*"), value[name])
        if "additionalProperties" in schema:
            path, known = (*step.path, "additionalProperties"), self._names(step)
            for name in value:
                if not known.is_valid({name: None}):
                    yield Step(schema["additionalProperties"], path, (*step.place, "*"), value[name])

    def _combined_rule(self, step: Step) -> str:
        schema = step.schema if isinstance(step.schema, Mapping) else {}
        return next((rule for rule in _COMBINED if rule in schema), "schema")

    def _valid(self, step: Step) -> bool:
        part = self._parts.get(step.path)
        if part is None:
            reference = f"{self._base}#{quote(_pointer(step.path))}"
            part = self._parts[step.path] = compile_schema({"$ref": reference}, self._registry)
        return part.is_valid(step.value)

    def _rule(self, step: Step, rule: str) -> jsonschema_rs.Validator:
        """A validator of one rule; cached by the rule's value, or by the schema's path if the value is a list or an object."""
        rule_value = step.schema[rule]
        key = (rule, step.path if isinstance(rule_value, list | Mapping) else rule_value, type(rule_value))
        return self._validator(key, lambda: {rule: rule_value})

    def _names(self, step: Step) -> jsonschema_rs.Validator:
        return self._validator(("names", step.path), partial(_names_of, step.schema))

    def _validator(self, key: tuple[object, ...], schema: Callable[[], dict[str, Any]]) -> jsonschema_rs.Validator:
        known = self._validators.get(key)
        if known is None:
            known = self._validators[key] = compile_schema(schema(), self._registry)
        return known


def _deeper(step: Step, *path: str) -> Step:
    """A subschema for the same value."""
    return Step(at(step.schema, path), (*step.path, *path), step.place, step.value)


def _items(step: Step) -> Iterator[Step]:
    first = step.schema.get("prefixItems", [])
    for index, value in enumerate(step.value):
        if index < len(first):
            yield Step(first[index], (*step.path, "prefixItems", str(index)), (*step.place, str(index)), value)
        elif "items" in step.schema:
            yield Step(step.schema["items"], (*step.path, "items"), (*step.place, str(index)), value)


def _names_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that checks only the names of an object."""
    return {
        "properties": dict.fromkeys(schema.get("properties", {}), True),
        "patternProperties": dict.fromkeys(schema.get("patternProperties", {}), True),
        "additionalProperties": False,
    }


def _without_names_of(pattern: str) -> dict[str, Any]:
    """A schema of objects without names that match the pattern."""
    return {"patternProperties": {pattern: False}}


def _violation(step: Step, rule: str, rule_value: Any) -> Violation:
    shown = _ascii(_pointer(step.place))
    if len(shown) > _MAX_POINTER:
        shown = f"{shown[:_MAX_POINTER]}..."
    return Violation(shown, rule, _reason(step, rule, rule_value))


def _reason(step: Step, rule: str, rule_value: Any) -> str:
    if rule == "required":
        missing = next((name for name in rule_value if isinstance(step.value, Mapping) and name not in step.value), "")
        return f"{printable(missing)} is missing"
    words = _REASONS.get(rule, "it breaks this rule")
    if "{}" not in words:
        return words
    shown = " or ".join(map(str, rule_value)) if isinstance(rule_value, list) else str(rule_value)
    return words.format(_ascii(shown)[:64])


def _pointer(path: tuple[str, ...]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path)


def _ascii(text: str) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)
