"""Runs a statement that returns one text on an application's connection of any driver, in its transaction; imports no driver itself."""

from __future__ import annotations

from typing import Any, Final

from relay.testing.statements import plain

_KNOWN: Final = "a connection, cursor or session of psycopg, SQLAlchemy or Django"
_LIBRARIES: Final = ("sqlalchemy.ext.asyncio", "sqlalchemy", "django", "psycopg", "psycopg2", "asyncpg")
_KNOWN_ASYNC: Final = "an async connection or session of psycopg or SQLAlchemy, or a connection of asyncpg"


def read(connection: Any, name: str, schema: str) -> str:
    """Run a statement that returns one text.

    Raises:
        TypeError: the connection belongs to an unknown library.
    """
    kind = _library(connection)
    if kind == "sqlalchemy":
        from sqlalchemy import text  # noqa: PLC0415 - an extra

        return str(connection.execute(text(plain(name, schema, escape="\\"))).scalar_one())
    if kind == "psycopg":
        from psycopg import Connection, Cursor, rows  # noqa: PLC0415 - as above

        own = connection.connection if isinstance(connection, Cursor) else connection
        if isinstance(own, Connection):
            # connection.execute is not used, because the connection may be configured with another cursor class.
            with Cursor(own, row_factory=rows.tuple_row) as cursor:
                return str(cursor.execute(plain(name, schema).encode()).fetchall()[0][0])
    elif kind in {"django", "psycopg2"}:
        with connection.cursor() as cursor:
            cursor.execute(plain(name, schema))
            return str(cursor.fetchall()[0][0])
    raise TypeError(f"{type(connection).__qualname__} is not {_KNOWN}; for {_KNOWN_ASYNC} there are the methods with _async.")


async def read_async(connection: Any, name: str, schema: str) -> str:
    """The same as `read`, for an async connection.

    Raises:
        TypeError: the connection belongs to an unknown library.
    """
    kind = _library(connection)
    if kind == "asyncpg":
        return str(await connection.fetchval(plain(name, schema)))
    if kind == "sqlalchemy.ext.asyncio":
        from sqlalchemy import text  # noqa: PLC0415 - an extra

        return str((await connection.execute(text(plain(name, schema, escape="\\")))).scalar_one())
    if kind == "psycopg":
        from psycopg import AsyncConnection, AsyncCursor, rows  # noqa: PLC0415 - as above

        own = connection.connection if isinstance(connection, AsyncCursor) else connection
        if isinstance(own, AsyncConnection):
            async with AsyncCursor(own, row_factory=rows.tuple_row) as cursor:
                await cursor.execute(plain(name, schema).encode())
                return str((await cursor.fetchall())[0][0])
    raise TypeError(f"{type(connection).__qualname__} is not {_KNOWN_ASYNC}; for {_KNOWN} there are the methods without _async.")


def _library(connection: Any) -> str:
    """The name of a connection's library, found for derived classes too."""
    modules = [f"{one.__module__}." for one in type(connection).__mro__]
    return next((name for module in modules for name in _LIBRARIES if module.startswith(f"{name}.")), "")
