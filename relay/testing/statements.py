"""Loads the SQL of a test's outbox: one statement per file of `relay/testing/queries`, rendered for one schema."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from psycopg import sql


def identifier(schema: str) -> str:
    """The schema as an SQL identifier."""
    return sql.Identifier(schema).as_string(None)


def statement(name: str, schema: str) -> bytes:
    """The statement of `queries/<name>.sql` with psycopg's placeholders."""
    return _text(name).replace("@schema@", identifier(schema).replace("%", "%%")).encode()


def plain(name: str, schema: str, *, escape: str = "") -> str:
    """A statement without parameters, for any driver; `escape` is inserted before each colon."""
    return _text(name).replace("@schema@", identifier(schema)).replace(":", f"{escape}:")


@cache
def _text(name: str) -> str:
    text = (files("relay.testing") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("@messages@", _text("messages").rstrip()) if "@messages@" in text else text
