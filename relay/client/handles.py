"""Checks, before any SQL, the connection that a helper gets: with a wrong connection a call may return an id and enqueue nothing.

Objects of other libraries are recognized by the names of their classes, so that none of those libraries is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg

Connection = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncConnection = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]
_CALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("psycopg.Connection", "psycopg.Cursor"), "call relay.client.{}"),
    **dict.fromkeys(("psycopg.AsyncConnection", "psycopg.AsyncCursor"), "call relay.client.{}_async"),
    "psycopg_pool.ConnectionPool": "take a connection from it and call relay.client.{}",
    "psycopg_pool.AsyncConnectionPool": "take a connection from it and call relay.client.{}_async",
    **dict.fromkeys(("sqlalchemy.Session", "sqlalchemy.scoped_session", "sqlalchemy.Connection"), "call relay.integrations.sqlalchemy.{}"),
    **dict.fromkeys(
        ("sqlalchemy.AsyncSession", "sqlalchemy.async_scoped_session", "sqlalchemy.AsyncConnection"),
        "call relay.integrations.sqlalchemy.{}_async",
    ),
    "sqlalchemy.Engine": "open a session or connection of it and call relay.integrations.sqlalchemy.{}",
    "sqlalchemy.sessionmaker": "open a session with it and call relay.integrations.sqlalchemy.{}",
    "sqlalchemy.AsyncEngine": "open a session or connection of it and call relay.integrations.sqlalchemy.{}_async",
    "sqlalchemy.async_sessionmaker": "open a session with it and call relay.integrations.sqlalchemy.{}_async",
    **dict.fromkeys(("asyncpg.Connection", "asyncpg.PoolConnectionProxy"), "call relay.integrations.asyncpg.{}"),
    "asyncpg.Pool": "acquire a connection from it and call relay.integrations.asyncpg.{}",
    **dict.fromkeys(
        ("django.ConnectionProxy", "django.BaseDatabaseWrapper"), "call relay.integrations.django.{} with using=connection.alias"
    ),
    "builtins.str": "open a connection, or, for the alias of a Django database, call relay.integrations.django.{} with using=",
}
"""Advice for an object of a library's class."""
_OTHERWISE: Final = "pass the one whose transaction the message belongs to"


def sync_connection(handle: object, call: str) -> psycopg.Connection[Any]:
    """The psycopg connection that a helper was given, directly or through a cursor.

    Args:
        handle: the application's argument.
        call: the helper's name.

    Raises:
        TypeError: the argument is neither a connection nor a cursor of psycopg; the error names the right call.
    """
    own = handle.connection if isinstance(handle, psycopg.Cursor) else handle
    if isinstance(own, psycopg.Connection):
        return own
    raise wrong_handle(handle, f"relay.client.{call}", "a connection or cursor of psycopg")


def async_connection(handle: object, call: str) -> psycopg.AsyncConnection[Any]:
    """`sync_connection` for psycopg's async connections and cursors."""
    own = handle.connection if isinstance(handle, psycopg.AsyncCursor) else handle
    if isinstance(own, psycopg.AsyncConnection):
        return own
    raise wrong_handle(handle, f"relay.client.{call}", "an async connection or cursor of psycopg")


def wrong_handle(handle: object, call: str, takes: str) -> TypeError:
    """The error for a handle that a helper does not accept. It shows only the handle's type, because a URL may contain a password.

    Args:
        handle: the application's argument.
        call: the helper's full name.
        takes: a description of the expected argument.
    """
    kinds = (f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(handle).__mro__)
    advice = next((_CALLS[kind] for kind in kinds if kind in _CALLS), _OTHERWISE)
    name = call.rpartition(".")[2].removesuffix("_async")
    if "relay.client." not in advice:
        # Only psycopg has COPY.
        name = name.replace("enqueue_copy", "enqueue_many")
    return TypeError(f"{call} takes {takes}, not {type(handle).__name__}: {advice.format(name)}.")
