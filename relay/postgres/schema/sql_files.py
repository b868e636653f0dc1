"""The files of `sql/`: the numbered migrations and the steps around them, with the names of one schema filled in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from psycopg import sql

from relay.errors import MigrationError

INCLUDED = ("unlimited", "found", "grantees")
"""Files that other files include by `@name@`."""
LONGEST_NAME = 63
"""Bytes of a PostgreSQL identifier (NAMEDATALEN - 1); a longer one would be truncated without an error."""


class Migration(NamedTuple):
    """One numbered file."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file as it is, including placeholders."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """Every numbered file, in order."""
    found = (re.fullmatch(r"(\d{4})_\w+\.sql", file.name) for file in _folder().iterdir())
    names = sorted(match[0] for match in found if match)
    return [Migration(int(name[:4]), name.removesuffix(".sql"), read(name)) for name in names]


class Renderer:
    """Fills one schema, its seed and the prefix of its roles into the placeholders of the files.

    `@schema@` becomes the quoted identifier, and `@schema_literal@` the schema's name as a string literal. `@seed@` becomes the settings
    as a JSON literal. `@role_prefix@` becomes the prefix as a string literal, which is empty without a prefix.
    """

    def __init__(self, schema: str, seed: Mapping[str, str], role_prefix: str | None = None) -> None:
        if not schema or "\0" in schema or schema.startswith("pg_") or len(schema.encode()) > LONGEST_NAME:
            raise MigrationError(
                f"{schema!r} cannot be the name of a schema: take 1 to {LONGEST_NAME} bytes that do not begin with pg_ (RELAY_SCHEMA)."
            )
        self._schema = schema
        self._values = {
            "@schema@": sql.Identifier(schema).as_string(None),
            "@schema_literal@": sql.Literal(schema).as_string(None),
            "@seed@": sql.Literal(json.dumps(dict(seed))).as_string(None),
            "@role_prefix@": sql.Literal(role_prefix or "").as_string(None),
        }

    def __call__(self, text: str) -> bytes:
        """Return the text of a file for this schema."""
        if "$" in self._schema:
            text = self._with_safe_dollar_quotes(text)
        return re.sub("@(schema|schema_literal|seed|role_prefix)@", lambda found: self._values[found[0]], text).encode()

    def _with_safe_dollar_quotes(self, text: str) -> str:
        """Keep a schema named `a$body$b` from ending the function body that contains it."""
        tag = "q"
        while tag in self._schema:
            tag += "q"
        return re.sub(r"\$(\w*)\$", rf"$\1{tag}$", text)


def _folder() -> Traversable:
    """The folder `sql/`: inside an installed package, or next to the package in a checkout."""
    package = files("relay")
    inside = package / "sql"
    return inside if inside.is_dir() else Path(str(package)).resolve().parent / "sql"


def read(name: str) -> str:
    """The text of a file of `sql/`, with the files that it includes."""
    whole = (_folder() / name).read_text(encoding="utf-8")
    for part in INCLUDED:
        if f"@{part}@" in whole:
            whole = whole.replace(f"@{part}@", read(f"{part}.sql"))
    return whole
