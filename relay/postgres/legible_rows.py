"""Reads rows with any content: bytes that are not UTF-8 become hexadecimal; times that Python cannot represent stay PostgreSQL's text."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg.types.datetime import TimestamptzLoader

UNREADABLE_LETTERS = (errors.UntranslatableCharacter, errors.CharacterNotInRepertoire)
"""The errors that PostgreSQL raises, in place of all rows, if it cannot convert a character in one row."""


def _as_bytes(error: UnicodeError) -> tuple[str, int]:
    """The character's bytes in hexadecimal, as the archive writes them: <81>."""
    assert isinstance(error, UnicodeDecodeError)
    return f"<{error.object[error.start : error.end].hex()}>", error.end


codecs.register_error("relay_as_bytes", _as_bytes)


class _AnyTime(TimestamptzLoader):
    """Reads a time. A time that is infinite, or outside the years 1 to 9999, stays text."""

    def load(self, data: Buffer) -> Any:
        """See `psycopg.adapt.Loader`."""
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode("ascii")


class _LegibleText(Loader):
    """Reads a text in the session's encoding."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._codec = self.connection.info.encoding if self.connection is not None else "ascii"

    def load(self, data: Buffer) -> str:
        """See `psycopg.adapt.Loader`."""
        return bytes(data).decode(self._codec, "relay_as_bytes")


class _LegibleJson(_LegibleText):
    """Reads JSON in the session's encoding."""

    def load(self, data: Buffer) -> Any:
        """See `psycopg.adapt.Loader`."""
        return json.loads(super().load(data))


def read_anything(connection: psycopg.Connection[Any]) -> None:
    """Make a connection read texts, JSON and times with any content. psycopg's own loaders would raise an error for a whole answer."""
    for name in ("text", "varchar", "name"):
        connection.adapters.register_loader(name, _LegibleText)
    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, _LegibleJson)
    connection.adapters.register_loader("timestamptz", _AnyTime)


def legible_rows(
    connection: psycopg.Connection[DictRow], error: psycopg.Error, statement: bytes, values: Mapping[str, object]
) -> list[DictRow]:
    """Run a statement that failed at a character again, without a conversion by the server.

    Raises:
        psycopg.Error: `error`, if the second run is impossible or fails too: within a transaction, which has failed, or if the character
            is in a value to be written.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise error
    ours, theirs = (connection.info.parameter_status(f"{side}_encoding") or "UTF8" for side in ("client", "server"))
    try:
        _speak(connection, theirs)
        return connection.execute(statement, values).fetchall()
    except (psycopg.DataError, psycopg.NotSupportedError, UnicodeError):
        # Python does not know the encoding, or a value cannot be written in the server's encoding.
        raise error from None
    finally:
        _speak(connection, ours)


def _speak(connection: psycopg.Connection[DictRow], encoding: str) -> None:
    connection.execute(sql.SQL("SET client_encoding TO {}").format(sql.Literal(encoding)))
