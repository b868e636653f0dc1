"""Databases in other encodings than UTF-8."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from relay.postgres.schema.migrate import migrate
from tests.support.servers.shared import Databases

UNTRANSLATABLE = {"WIN1252": r"\x81", "EUC_JP": r"\x8ff9f9", "EUC_KR": r"\xfea1"}
"""Bytes of a letter, as text of a bytea, that each encoding takes and UTF-8 lacks."""
LETTER = "convert_from('{}', getdatabaseencoding())"
BYTE = r"'\xff'::bytea::text"
"""A byte that is no letter, as text; it takes `MAKE_BYTES`."""
MAKE_BYTES = "CREATE CAST (bytea AS text) WITHOUT FUNCTION"


@contextmanager
def encoded_database(databases: Databases, encoding: str) -> Iterator[str]:
    """A database of that encoding with the schema; its URL. In UTF8 it takes `BYTE` too."""
    # Several runs may share the server.
    name = f"relay_test_{encoding.lower()}_{secrets.token_hex(5)}"
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode())
        try:
            migrate(databases.url(name))
            if encoding == "UTF8":
                with psycopg.connect(databases.url(name), autocommit=True) as connection:
                    connection.execute(MAKE_BYTES)
            yield databases.url(name)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def letter(encoding: str) -> str:
    """An SQL expression of a letter that UTF-8 lacks; in UTF8, of a byte that is no letter."""
    return BYTE if encoding == "UTF8" else LETTER.format(UNTRANSLATABLE[encoding])
