"""What may be a contract, and what is said of a content that breaks one."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.contracts.schema import MAX_BYTES, MAX_DEPTH, Schema, SchemaError, compiled
from relay.contracts.violation import DIALECT

pytestmark = pytest.mark.ids("A37")
ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["order", "state"],
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "state": {"enum": ["placed", "paid"]},
        "id": {"type": "string", "format": "uuid"},
        "sku": {"pattern": "^[A-Z]{3}$"},
        "lines": {"items": {"$ref": "#/$defs/line"}},
        "a/b~c": {"type": "null"},
        "ways": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
        "tags": {"additionalProperties": {"type": "integer"}},
        "first": {"prefixItems": [{"const": 1}], "items": {"const": 2}},
        "x": {"allOf": [{"maxLength": 3}, {"minLength": 2}]},
        "w": {"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"maximum": 1}},
        "never": False,
    },
    "patternProperties": {"^n_": {"type": "number"}},
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"count": {"multipleOf": 2}}}},
}
RULES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["object", "array", "integer", "string"]),
    "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    "const": st.sampled_from([1, "a", None, {}]),
    "minimum": st.integers(-1, 2),
    "maxLength": st.integers(0, 2),
    "minProperties": st.integers(0, 2),
    "maxItems": st.integers(0, 2),
}


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, named = st.lists(inner, min_size=1, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    nested = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("properties", "patternProperties"), named),
        **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "additionalProperties", "unevaluatedProperties"), inner),
    }
    return st.fixed_dictionaries({}, optional={**RULES, **nested})


SCHEMAS = st.recursive(st.booleans() | st.fixed_dictionaries({}, optional=RULES), _schemas, max_leaves=6)
CONTENTS = st.recursive(
    st.none() | st.integers(-2, 3) | st.sampled_from(["", "a", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=5,
)
FINE: dict[str, Any] = {"order": 1, "state": "paid"}


@pytest.mark.parametrize(
    ("content", "pointer", "rule", "reason"),
    [
        ([], "", "type", "it is not of type object"),
        ({"order": 1}, "", "required", '"state" is missing'),
        (FINE | {"order": 0}, "/order", "minimum", "it is less than 1"),
        (FINE | {"order": "1"}, "/order", "type", "it is not of type integer"),
        (FINE | {"state": "x"}, "/state", "enum", "it is none of the values that are allowed"),
        (FINE | {"id": "x"}, "/id", "format", "it is no uuid"),
        (FINE | {"sku": "x"}, "/sku", "pattern", "it does not match the pattern"),
        (FINE | {"lines": [{"sku": 1}, {}]}, "/lines/1", "required", '"sku" is missing'),
        (FINE | {"lines": [{"sku": 1, "count": 3}]}, "/lines/0/count", "multipleOf", "it is no multiple of 2"),
        (FINE | {"a/b~c": 1}, "/a~1b~0c", "type", "it is not of type null"),
        (FINE | {"ways": 7}, "/ways", "oneOf", "it is not exactly one of the alternatives"),
        (FINE | {"tags": {"word": "x"}}, "/tags/*", "type", "it is not of type integer"),
        (FINE | {"first": [1, 3]}, "/first/1", "const", "it is not the one value that is allowed"),
        (FINE | {"first": [2]}, "/first/0", "const", "it is not the one value that is allowed"),
        (FINE | {"x": "abcd"}, "/x", "maxLength", "it has more than 3 characters"),
        (FINE | {"w": "ab"}, "/w", "maxLength", "it has more than 1 characters"),
        (FINE | {"w": 2}, "/w", "maximum", "it is more than 1"),
        (FINE | {"never": 1}, "/never", "false", "nothing may stand here"),
        (FINE | {"n_1": "x"}, "/*", "type", "it is not of type number"),
        (FINE | {"word": 1}, "", "additionalProperties", "it has a property that is not named"),
    ],
)
def test_a_violation_names_place_rule_and_reason(content: Any, pointer: str, rule: str, reason: str) -> None:
    """The first one on the way down; a name that only the content has is written as a star."""
    assert (pointer, rule, reason) == Schema(ORDER).judge(json.dumps(content))


def test_what_keeps_the_schema_has_no_violation() -> None:
    """As bytes and as text, and numbers as jsonb writes them."""
    fine = FINE | {"lines": [{"sku": 1, "count": 4.0}], "n_1": 1, "x": "abc", "w": "a", "tags": {"a": 1}, "ways": 3}
    assert [None, None] == [Schema(ORDER).judge(json.dumps(fine)), Schema(ORDER).judge(json.dumps(fine).encode())]


@pytest.mark.parametrize("keyword", ["anyOf", "not", "contains", "propertyNames", "unevaluatedProperties", "dependentSchemas"])
def test_rules_that_combine_others_are_blamed_themselves(keyword: str) -> None:
    """They are named where no single rule below is at fault, and in schemas that refer to each other by address."""
    broken: dict[str, tuple[Any, Any]] = {
        "anyOf": ([{"type": "string"}, {"type": "null"}], {}),
        "not": ({"required": ["a"]}, {"a": 1}),
        "contains": ({"const": 1}, [2]),
        "propertyNames": ({"maxLength": 1}, {"ab": 1}),
        "unevaluatedProperties": (False, {"ab": 1}),
        "dependentSchemas": ({"a": {"required": ["b"]}}, {"a": 1}),
    }
    rule, content = broken[keyword]
    schema = {"$id": "https://example.com/s", "$defs": {"t": {"$anchor": "t", keyword: rule}}, "$ref": "#t"}

    assert keyword == Schema({keyword: rule}).judge(json.dumps(content))[1]  # type: ignore[index]
    found = Schema(schema).judge(json.dumps(content))
    assert found is not None
    assert ("", "$ref") == found[:2]


@given(SCHEMAS, CONTENTS)
def test_it_says_what_the_whole_validator_says(schema: Any, content: Any) -> None:
    """With any schema, a violation is reported if and only if the validator finds one. Its pointer leads to a value of the content."""
    found = Schema(schema).judge(json.dumps(content))

    assert (found is None) == jsonschema_rs.Draft202012Validator(schema).is_valid(content)
    values = [content]
    for step in found.pointer.split("/")[1:] if found else ():
        values = [below for value in values for below in _below(value, step)]
    assert values


def _below(value: Any, step: str) -> list[Any]:
    """The values to which a step of a pointer leads. A star means any name that only the content has."""
    if isinstance(value, dict):
        return list(value.values()) if step == "*" else [value[step]] if step in value else []
    return value[int(step) : int(step) + 1] if isinstance(value, list) and step.isdecimal() else []


def test_nothing_of_the_content_is_told() -> None:
    """Neither a value nor a name that the schema does not know."""
    canary = secrets.token_hex(8)
    contents = [
        {canary: canary},
        {**FINE, "state": canary},
        {**FINE, "tags": {canary: canary}},
        {**FINE, f"n_{canary}": canary},
        canary,
        [canary],
    ]
    told = [Schema(ORDER).judge(json.dumps(content)) for content in contents]

    assert None not in told
    assert canary not in str(told)


def test_a_sentence_is_printable_whatever_the_schema_says() -> None:
    """Names and formats of a schema may hold anything; a pointer is cut."""
    schema = {"properties": {"\x1b[2J\n": {"type": "null"}, "x" * 400: {"type": "null"}, "f": {"required": ["\x07"]}}}
    contents: list[Any] = [{"\x1b[2J\n": 1}, {"x" * 400: 1}, {"f": {}}]
    told = [Schema(schema).judge(json.dumps(content)) for content in contents]

    assert ["/?[2J?", "/" + "x" * 199 + "...", "/f"] == [found.pointer for found in told if found]
    assert all(text.isprintable() for found in told if found for text in found)


NO_EXPRESSION = "This is no regular expression, or a larger one than is allowed: "
OUT = "A $ref leads out of the schema, and nothing is ever fetched, or to nothing or several places"
OTHER = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ([], 'A schema is an object, or true or false: {"type": "object"}.'),
        ({"type": "objekt"}, "The schema is wrong at \"/type\" by the rule 'anyOf' of JSON Schema 2020-12."),
        ({"items": {"minLength": -1}}, "The schema is wrong at \"/items/minLength\" by the rule 'minimum' of JSON Schema 2020-12."),
        ({"pattern": "("}, f'{NO_EXPRESSION}"(".'),
        ({"pattern": "((a{999}){999}){999}"}, f'{NO_EXPRESSION}"((a{{999}}){{999}}){{999}}".'),
        ({"patternProperties": {"[": True}}, f'{NO_EXPRESSION}"[".'),
        (
            {"$ref": "#/$defs/x"},
            'A $ref leads out of the schema, and nothing is ever fetched, or to nothing or several places: "#/$defs/x".',
        ),
        ({"$schema": OTHER}, f'The schema says that it is of "{OTHER}"; contracts are of {DIALECT}: correct $schema.'),
        ({"title": "\ud800"}, "The schema holds text that is not valid UTF-8: half of a surrogate pair; correct it."),
        ({"title": "x" * MAX_BYTES}, f"The schema is {MAX_BYTES + 13} bytes long; the limit is {MAX_BYTES} bytes."),
    ],
)
def test_what_is_no_schema_is_refused_by_its_place(schema: Any, sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(SchemaError) as refused:
        Schema(schema)
    assert sentence == str(refused.value)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "https://example.com/x", "file:///etc/passwd", "other.json", "urn:x"])
@pytest.mark.parametrize("place", ["top", "unused definition"])
def test_nothing_is_ever_fetched(reference: str, place: str) -> None:
    """A reference out of the schema is refused when the contract is added, wherever it is."""
    schema = {"$ref": reference} if place == "top" else {"$defs": {"x": {"$ref": reference}}}
    with pytest.raises(SchemaError, match=r"^A \$ref leads out of the schema, and nothing is ever fetched"):
        Schema(schema)


def test_a_schema_beside_it_is_not_read_either(tmp_path: Path) -> None:
    """A file that is there, and a schema that would be accepted with it."""
    (tmp_path / "other.json").write_text("true")
    with pytest.raises(SchemaError, match=r"^A \$ref leads out of the schema, and nothing is ever fetched"):
        Schema({"$ref": (tmp_path / "other.json").as_uri()})


@pytest.mark.parametrize("text", ["", "{", '{"not":' * 5000 + "{}" + "}" * 5000, '{"not":' * 600 + "{}" + "}" * 600])
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    """No JSON, or nested beyond any use; without a traceback."""
    with pytest.raises(SchemaError, match=r"not JSON|nests too deep"):
        compiled(text)


def test_a_schema_that_doubles_at_each_reference_is_refused() -> None:
    """Forty lines of it would ask for a million million checks of one value; one that only refers to itself is fine."""
    doubling: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(40)}
    with pytest.raises(SchemaError, match="asks for more than 1000000 checks of one value"):
        Schema({"$defs": doubling | {"a40": {"type": "integer"}}, "$ref": "#/$defs/a0"})

    node = {"oneOf": [{"type": "null"}, {"properties": {"next": {"$ref": "#/$defs/n"}}, "type": "object"}]}
    chain: Any = None
    for _ in range(MAX_DEPTH - 2):
        chain = {"next": chain}
    assert Schema({"$defs": {"n": node}, "$ref": "#/$defs/n"}).judge(json.dumps(chain)) is None


@pytest.mark.parametrize(
    ("reference", "extra"),
    [
        ("#/%24defs/a{}", {}),
        ("#/$defs/%61{}", {}),
        ("#n{}", {"$anchor": "n{}"}),
        ("#n{}", {"$dynamicAnchor": "n{}"}),
        ("https://x.invalid/a{}", {"$id": "https://x.invalid/a{}"}),
        ("https://x.invalid/a{}#", {"$id": "https://x.invalid/a{}#"}),
        ("https://x.invalid/a{}#n", {"$id": "https://x.invalid/a{}", "$anchor": "n"}),
        ("a{}", {"$id": "a{}"}),
        ("a{}", {"$id": "https://x.invalid/a{}"}),
        ("A/../a{}", {"$id": "a{}"}),
        ("#/properties/$defs/properties/a{}", {}),
        ("#/x-parts/a{}", {}),
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_no_reference_hides_that_a_schema_doubles(reference: str, extra: dict[str, str], keyword: str) -> None:
    """However it is written: what it leads to is weighed, or it is refused."""
    defs: dict[str, Any] = {}
    for n in range(41):
        one = {keyword: reference.format(n + 1)}
        rule = {"allOf": [one, one]} if n < 40 else {"type": "integer"}
        defs[f"a{n}"] = {name: text.format(n) for name, text in extra.items()} | rule
    whole = {"$defs": defs, "properties": {"$defs": {"properties": defs}}} if "properties" in reference else {"$defs": defs}
    if "x-parts" in reference:
        whole = {"x-parts": defs}
    with pytest.raises(SchemaError, match=r"asks for more than 1000000 checks of one value|^A \$ref leads out of the schema"):
        Schema({**whole, "$id": "https://x.invalid/", keyword: reference.format(0)})


@pytest.mark.parametrize(
    ("schema", "broken"),
    [
        ({"$defs": {"a b": {"type": "integer"}}, "$ref": "#/$defs/a%20b"}, "type"),
        ({"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"}, "type"),
        ({"$defs": {"n": {"$dynamicAnchor": "n", "type": "integer"}}, "$dynamicRef": "#n"}, "$dynamicRef"),
        ({"$defs": {"n": {"$id": "https://x.invalid/n", "type": "integer"}}, "$ref": "https://x.invalid/n"}, "$ref"),
        ({"$defs": {"n": {"$id": "urn:x:n", "$defs": {"m": {"type": "integer"}}, "$ref": "#/$defs/m"}}, "$ref": "urn:x:n"}, "$ref"),
        ({"$id": "https://x.invalid/s/", "$defs": {"n": {"$id": "n.json", "type": "integer"}}, "$ref": "n.json"}, "$ref"),
    ],
)
def test_references_of_every_kind_are_followed(schema: Any, broken: str) -> None:
    """Bundles of schemas with addresses of their own, anchors, and pointers with escapes."""
    found = Schema(schema).judge('"x"')
    assert found is not None
    assert broken == found.rule
    assert Schema(schema).judge("1") is None


def test_a_reference_that_may_lead_to_two_places_is_refused() -> None:
    """Two schemas with one address, or with one name that is looked for where a check comes from."""
    twice: list[Any] = [{"$id": "https://x.invalid/n"}, {"$id": "https://x.invalid/n", "type": "integer"}]
    named: list[Any] = [{"$id": f"https://x.invalid/{n}", "$defs": {"m": {"$dynamicAnchor": "n"}}} for n in "ab"]
    for parts, reference in ((twice, "https://x.invalid/n"), (named, "https://x.invalid/a#n")):
        with pytest.raises(SchemaError, match=r"^A \$ref leads out of the schema"):
            Schema({"$defs": dict(zip("ab", parts, strict=True)), "$ref": reference})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+$)x", r"^(?:(a+)+)\1$", "(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_regular_expression_hangs(pattern: str) -> None:
    """Those that need steps back get ten thousand of them; a text for which that is too few does not match."""
    began = time.perf_counter()
    found = Schema({"pattern": pattern}).judge(json.dumps("a" * 20_000 + "!"))

    assert found is not None
    assert "pattern" == found.rule
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("[" * 10_000 + "]" * 10_000, "nesting"),
        ('{"a":' * 300 + "1" + "}" * 300, "nesting"),
        ("1" + "0" * 5000, "digits"),
        ("1" + "0" * 400, "maximum"),
        ("1" + "0" * 400 + ".5", "type"),
        ("-1e400", "type"),
        ('"\\ud800"', "json"),
        ("", "json"),
    ],
)
def test_contents_at_the_edge_are_judged_and_crash_nothing(content: str, rule: str) -> None:
    """Ten thousand levels, numbers of thousands of digits, half of a character."""
    found = Schema({"type": "integer", "maximum": 5}).judge(content)
    assert found is not None
    assert rule == found.rule


def test_a_large_content_is_explained_without_copies_of_it() -> None:
    """Fifty alternatives of 8 MB: the library's own account would take 800 MB."""
    content = json.dumps({"a": ["x" * 1000] * 8000})
    schema = Schema({"anyOf": [{"properties": {"a": {"type": "string"}}, "required": [f"k{n}"]} for n in range(50)]})
    assert schema.judge(content) == ("", "anyOf", "it is none of the alternatives")


@given(st.text(max_size=20))
def test_formats_are_asserted_and_unknown_ones_are_not(text: str) -> None:
    """An author who writes a format means it; an unknown format says nothing."""
    assert Schema({"format": "of our own"}).judge(json.dumps(text)) is None
    assert Schema({"format": "ipv4"}).judge(json.dumps(f"x{text}")) is not None
