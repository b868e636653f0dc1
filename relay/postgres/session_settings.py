"""Settings of every connection, which override those of the environment, the role, the database and the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from relay.queries.statements import text

ENCODING = "UTF8"
"""The client_encoding, given when connecting, which overrides a role's setting: in LATIN1 one character would make whole claims fail."""
PINNED: Mapping[str, str] = {"DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "TimeZone": "UTC", "standard_conforming_strings": "on"}
"""Set after connecting, before anything else: how times are written, and that a backslash in a literal is itself.

PgBouncer reports these settings to each of its clients, and refuses them as start-up options.
"""
DEFAULTS: Mapping[str, str] = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "extra_float_digits": "1",
    "transform_null_equals": "off",
}
"""Set with `PINNED` if the relay does not share the session: NULL in an array is a null and not a word, numbers and bytes are printed
exactly, notices arrive.

These are PostgreSQL's own defaults. PgBouncer does not know them, so in transaction mode another client may get these settings, and the
relay's session may lose them.
"""


def _setting(values: Mapping[str, str]) -> bytes:
    return ("SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in values.items())).encode()


PIN = _setting({**PINNED, **DEFAULTS})
"""The statement that sets `PINNED` and `DEFAULTS`."""
PIN_OF_HANDLERS = _setting({name: value for name, value in {**PINNED, **DEFAULTS}.items() if name != "TimeZone"})
"""`PIN` without the time zone, for the session of an application's handler, whose statements may rely on the role's or database's zone."""
NOTICE = text("watch_client").encode()
"""The relay runs this statement in sessions that it does not share. A command runs it in every session: behind PgBouncer in transaction
mode the server then watches the pooler, in a session that other clients get too. That neither helps nor harms any client."""
PATH = "pg_catalog,pg_temp"
"""The search path. With another path, an operator or function that fits better than PostgreSQL's own would run with the relay's rights.
The relay's statements name the schema of every other object."""
PIN_PATH = text("pin_path").encode()
"""The statement that sets the search path; `path_of` makes its values."""
_UNLIMITED = b"SELECT pg_catalog.set_config('statement_timeout', '0', false)"
"""Runs first: otherwise a role's timeout of some milliseconds could end the next statement, which reads all settings and is compiled."""
OWN = b";\n".join((_UNLIMITED, text("undo_rules").encode(), NOTICE))
"""Statements for a session that the relay does not share; they apply until the session ends."""


def pin(connection: psycopg.Connection[Any]) -> None:
    """Set `PINNED`, `DEFAULTS` and the search path on a fresh connection, and run `NOTICE`; if that fails, close the connection.

    Raises:
        psycopg.Error: a statement failed.
    """
    try:
        connection.execute(PIN)
        pin_path(connection)
        connection.execute(NOTICE)
    except BaseException:
        connection.close()
        raise


def pin_path(connection: psycopg.Connection[Any]) -> bool:
    """Set the search path, also repeatedly; return False if a pooler prevents it.

    Raises:
        psycopg.Error: the statement failed.
    """
    return connection.execute(PIN_PATH, path_of(connection.info)).rowcount == 1


def path_of(info: psycopg.ConnectionInfo) -> dict[str, object]:
    """The values of `PIN_PATH` for a connection."""
    return {"path": PATH, "backend": info.backend_pid}


def unreadable(info: psycopg.ConnectionInfo) -> str | None:
    """Why texts of this database are not reliable, as one sentence; None if they are reliable."""
    if info.parameter_status("server_encoding") != "SQL_ASCII":
        return None
    return (
        "The database has the encoding SQL_ASCII, so PostgreSQL does not know which letters its bytes are: create one with "
        "ENCODING 'UTF8' TEMPLATE template0, and point RELAY_DATABASE_URL to it."
    )
