"""Compiles a JSON Schema and refuses unsuitable ones; checks contents against it. No I/O, and nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import jsonschema_rs
from pydantic_core import from_json

from relay.codec.option_rules import printable
from relay.contracts.check_time import effort
from relay.contracts.references import UnclearReferenceError
from relay.contracts.schema_cost import MAX_WEIGHT, weight
from relay.contracts.schema_size import MAX_SIZE, WrongPatternError, patterns_of, schema_size
from relay.contracts.violation import DIALECT, Explainer, Violation, compile_schema
from relay.errors import RelayError

MAX_BYTES: Final = 262_144
"""The most bytes of a schema as PostgreSQL prints it (sql/0017_contract.sql)."""
MAX_DEPTH: Final = 200
"""The most levels of nesting in a content with a contract."""
_TOO_DEEP: Final = Violation("", "nesting", f"it nests more than {MAX_DEPTH} levels, which no contract can judge")
_TOO_LONG: Final = Violation("", "digits", "it holds a number of more than 4300 digits, which no contract can judge")
_NOT_JSON: Final = Violation("", "json", "it is not JSON that a contract can judge")


class SchemaError(RelayError):
    """The schema cannot be used as a contract; the message names the place and the reason."""


class Schema:
    """One compiled schema.

    Raises:
        SchemaError: the schema is invalid, has a reference to another document, or is too expensive.
    """

    def __init__(self, document: Any) -> None:
        self.size = _check(document)
        """The most bytes that the schema takes in memory."""
        try:
            self.valid = compile_schema(document).is_valid
        except jsonschema_rs.ValidationError as error:
            raise SchemaError(_sentence(error)) from None
        except ValueError:
            raise SchemaError("The schema nests too deep; flatten it with $defs and $ref.") from None
        self.effort = effort(document)
        """The effort for each byte of a content."""
        self._document = document
        self._explainer: Explainer | None = None

    def explain(self, value: Any) -> Violation:
        """Where and why an invalid value breaks the schema, without any part of the value."""
        if self._explainer is None:
            self._explainer = Explainer(self._document)
        return self._explainer.explain(value)

    def judge(self, content: bytes | str) -> Violation | None:
        """The violation of the schema by a content (JSON text); None if the content is valid."""
        value = parsed(content)
        if type(value) is Violation:
            return value
        return None if self.valid(value) else self.explain(value)


def compiled(text: str) -> Schema:
    """The schema of a JSON text; raises SchemaError like `Schema`."""
    try:
        document = from_json(text)
    except ValueError:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise SchemaError("The schema is not JSON, or nests too deep.") from None
    return Schema(document)


def parsed(content: bytes | str) -> Any:
    """The value of a content, or a violation if it cannot be parsed."""
    try:
        return from_json(content)
    except ValueError as error:
        words = str(error)
        if "recursion limit" in words:
            return _TOO_DEEP
        return _TOO_LONG if "out of range" in words else _NOT_JSON


def _check(document: Any) -> int:
    """The size of a schema in memory; raises SchemaError for a schema that cannot be used as a contract."""
    if not isinstance(document, dict | bool):
        raise SchemaError('A schema is an object, or true or false: {"type": "object"}.')
    if isinstance(document, dict) and (named := document.get("$schema", DIALECT)) not in (DIALECT, DIALECT + "#"):
        raise SchemaError(f"The schema says that it is of {printable(str(named))}; contracts are of {DIALECT}: correct $schema.")
    patterns = dict[str, None]()

    def note(schema: Mapping[str, Any]) -> int:
        patterns.update(dict.fromkeys(patterns_of(schema)))
        return 0

    try:
        size, heavy = len(json.dumps(document, ensure_ascii=False).encode()), weight(document, note)
    except UnicodeEncodeError:
        raise SchemaError("The schema holds text that is not valid UTF-8: half of a surrogate pair; correct it.") from None
    except UnclearReferenceError as error:
        raise SchemaError(_unclear(error.args[0])) from None
    except RecursionError:
        raise SchemaError("The schema nests too deep, or refers to itself over too many steps; flatten it.") from None
    if size > MAX_BYTES:
        raise SchemaError(f"The schema is {size} bytes long; the limit is {MAX_BYTES} bytes.")
    if heavy > MAX_WEIGHT:
        raise SchemaError(
            f"The schema asks for more than {MAX_WEIGHT} checks of one value, because references lead to the same schemas again and again; "
            "say each thing once."
        )
    return _size(size, patterns)


def _size(text_bytes: int, patterns: Iterable[str]) -> int:
    try:
        taken = schema_size(text_bytes, patterns)
    except WrongPatternError as error:
        raise SchemaError(f"This is no regular expression, or a larger one than is allowed: {printable(error.args[0])}.") from None
    if taken > MAX_SIZE:
        raise SchemaError(
            f"The schema takes more than {MAX_SIZE >> 20} MiB of memory when it is compiled: "
            "write fewer or shorter regular expressions, [a-z] in place of \\p{L}."
        )
    return taken


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        return _unclear(_reference(error))
    place = "/".join(("", *(str(step) for step in error.instance_path)))
    return f"The schema is wrong at {_place(place)} by the rule {error.kind.name!r} of JSON Schema 2020-12."


def _unclear(reference: str) -> str:
    return f"A $ref leads out of the schema, and nothing is ever fetched, or to nothing or several places: {printable(reference)}."


def _reference(error: jsonschema_rs.ValidationError) -> str:
    words = error.message.split("'")
    return words[1] if len(words) > 1 else error.message


def _place(pointer: str) -> str:
    return printable(pointer) if pointer else "its top"
