"""The processor time of a check compared with its estimate, whatever the rule, the values that it names and those that come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pytest

from relay.contracts.check_time import inline_bytes
from relay.contracts.schema import Schema, parsed

pytestmark = pytest.mark.ids("A37")
SLACK: Final = 3
"""Times as long as reckoned that a check may take, on a machine with other work."""
RULES: Final = 40
"""Rules of a kind that a schema has: their effort, and not what all schemas may take, decides how large a content may be."""
PART: Final = 32
"""What is checked has this part of the largest size, so that all of it takes seconds."""
VALUES: Final[dict[str, Callable[[int], Any]]] = {
    "integers": lambda n: 10 + n,
    "large integers": lambda n: 10**30 + n,
    "halves": lambda n: n + 0.5,
    "rates": lambda n: round(0.19 + n / 1000, 3),
    "thirds": lambda n: 1 / (3 + n),
    "tiny fractions": lambda n: float(f"{n + 1}e-20"),
    "vast numbers": lambda n: float(f"{n + 1}e300"),
    "texts": lambda n: f"s{n}",
    "booleans": lambda n: bool(n % 2),
    "nulls": lambda _: None,
    "objects": lambda n: {"a": n},
    "objects of fractions": lambda n: {"a": n + 0.5},
    "arrays": lambda n: [n],
    "arrays of fractions": lambda n: [1 / (3 + n)],
}
NUMBERS: Final = [*VALUES][:7]
CONTENTS: Final = {name: [value(RULES - 1), value(7)] for name, value in VALUES.items()} | {
    "small fractions": [0.00001],
    "one and a half": [1.5],
    "long numbers": [10**20, 10**400],
    "objects of many": [{f"k{n}": n for n in range(20)}],
    "long texts": ["a" * 500],
    "regular expressions": [r"\p{L}{60}"],
    "empty ones": ["", [], {}],
}
SIZES: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
FORMATS: Final = ("date-time", "email", "uuid", "uri", "ipv6", "regex")


def _bound(rule: str, value: Callable[[int], Any], n: int) -> dict[str, Any]:
    return {rule: value(n)}


def _format(name: str, _: int) -> dict[str, Any]:
    return {"format": name}


def _different(values: Any) -> list[Any]:
    return [json.loads(text) for text in dict.fromkeys(map(json.dumps, values))]


NAMED: Final[dict[str, Callable[[Callable[[int], Any], int], dict[str, Any]]]] = {
    "const": lambda value, n: {"const": value(n)},
    "enum": lambda value, n: {"enum": _different(value(n + 100 * other) for other in range(10))},
    "enum with null": lambda value, n: {"enum": _different([None, *(value(n + 100 * other) for other in range(10))])},
}
BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
OTHERS: Final[dict[str, Callable[[int], Any]]] = {
    **{name: partial(_bound, name, int) for name in SIZES},
    **{f"format {name}": partial(_format, name) for name in FORMATS},
    "type": lambda n: {"type": ["string", "integer", "number", "boolean", "null", "array", "object"][n % 7]},
    "required": lambda _: {"required": [f"k{n}" for n in range(20)]},
    "dependentRequired": lambda _: {"dependentRequired": {f"k{n}": ["k0", "k1"] for n in range(20)}},
    "pattern": lambda n: {"pattern": f"^[a-z0-9 ]*[A-Z]{n}$"},
    "patternProperties": lambda n: {"patternProperties": {f"^k{n}.*x$": True}},
    "propertyNames": lambda _: {"propertyNames": {"maxLength": 2}},
    "properties": lambda _: {"properties": {"k1": {"type": "integer"}}, "additionalProperties": {"type": "integer"}},
    "prefixItems": lambda _: {"prefixItems": [{"type": "integer"}], "items": {"type": "integer"}},
    "contains": lambda _: {"contains": {"type": "string"}, "minContains": 0, "maxContains": 9},
    "unevaluatedProperties": lambda _: {"properties": {"a": True}, "unevaluatedProperties": {"type": "integer"}},
    "unevaluatedItems": lambda _: {"contains": {"type": "string"}, "unevaluatedItems": False},
    "uniqueItems": lambda _: {"uniqueItems": True},
    "not": lambda _: {"not": {"type": "string"}},
    "if": lambda _: {"if": {"type": "string"}, "then": {"maxLength": 2}, "else": {"maximum": 2}},
    "oneOf": lambda _: {"oneOf": [{"type": "string"}, {"type": "integer"}]},
}
CASES: Final[dict[str, Callable[[int], Any]]] = {
    **{f"{rule} of {name}": partial(made, VALUES[name]) for rule, made in NAMED.items() for name in VALUES},
    **{f"{rule} of {name}": partial(_bound, rule, VALUES[name]) for rule in BOUNDS for name in NUMBERS},
    **OTHERS,
}


def _text(value: Any) -> str:
    """As jsonb writes it: no number has an exponent."""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(each)}" for name, each in value.items()) + "}"
    return f"[{','.join(map(_text, value))}]" if isinstance(value, list) else json.dumps(value)


def _seconds(schema: Schema, content: list[Any]) -> float:
    """Processor seconds of a check of as many of these values as a part of the largest content holds, the lesser of two."""
    some = ",".join(map(_text, content))
    value = parsed(f"[{','.join([some] * (inline_bytes(schema.effort) // PART // (len(some) + 1)))}]")
    took = []
    for _ in range(2):
        began = time.thread_time()
        schema.valid(value)
        took.append(time.thread_time() - began)
    return min(took)


def _most() -> float:
    """Seconds in which all checks should end: what exact comparisons of fractions take where they fill the effort of a plain schema."""
    return SLACK * _seconds(Schema({"items": {"anyOf": [{"const": n + 0.5} for n in range(2)]}}), [1.5])


MOST: Final = max(_most() for _ in range(3))


@pytest.mark.parametrize("rules", [1, RULES])
@pytest.mark.parametrize("case", CASES)
def test_no_check_takes_longer_than_its_effort_says(case: str, rules: int) -> None:
    """One rule and many of them, of which each fails or each holds; contents of every kind."""
    each = [CASES[case](n) for n in range(rules)]
    for combined in ("anyOf", "allOf"):
        schema = Schema({"items": {combined: each} if rules > 1 else each[0]})
        slow = [name for name, content in CONTENTS.items() if _seconds(schema, content) > MOST and _seconds(schema, content) > _most()]
        assert [] == slow, combined


def test_what_a_rule_takes_counts_as_often_as_a_reference_leads_to_it() -> None:
    """Thirty references to a slow rule are as slow as thirty slow rules."""
    slow = {"multipleOf": 0.01}
    several = [Schema({"$defs": {"n": slow}, "items": {"allOf": [one] * 30}}).effort for one in ({"$ref": "#/$defs/n"}, slow)]
    assert several[0] >= several[1] > 30_000


@pytest.mark.parametrize(
    "pattern",
    [
        *("a*+b", "a++b", "a?+a*b", "a{1,}+b", "(?:ab|a)*+c", "^(?:a|aa)++b$"),
        *("(?=a*b)c", "(?!a*b)c", "(?<=a)a*b(?<!c)", r"^(a*)(a*)\1b$", "(?x)a* +b"),
        *("^[a-z]*[A-Z]$", r"(?:a|aa)*\bb", "(?i)a*B", r"\p{L}*1"),
    ],
)
def test_no_pattern_takes_longer_than_its_effort_says(pattern: str) -> None:
    """Those that take steps back, however they are written, and those that take none."""
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: False}}):
        made = Schema(schema)
        text = "a" * inline_bytes(made.effort)
        value = text if "pattern" in schema else {text: None}
        began = time.thread_time()
        made.valid(value)
        assert time.thread_time() - began < PART * MOST
