"""What every connection holds to, whatever the environment, the role, the database or the server's settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import scalar_row

ENCODING = "UTF8"
"""The client_encoding, given when connecting, since a role's setting yields to that: in LATIN1 one letter would refuse whole claims."""
PINNED: Mapping[str, str] = {"DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "TimeZone": "UTC", "standard_conforming_strings": "on"}
"""Set after connecting, before anything else: how times are written, and that a backslash in a literal is itself.

PgBouncer reports these to each of its clients, and refuses them as start-up options.
"""
DEFAULTS: Mapping[str, str] = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "extra_float_digits": "1",
    "transform_null_equals": "off",
}
"""Set with them where the session is ours: NULL in an array is no word, numbers and bytes as texts are whole, notices arrive.

PostgreSQL's own defaults. PgBouncer does not know these, so in transaction mode they may be handed on to others, and may not hold.
"""


def _setting(values: Mapping[str, str]) -> bytes:
    return ("SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in values.items())).encode()


PIN = _setting({**PINNED, **DEFAULTS})
"""The statement that sets them."""
PIN_OF_HANDLERS = _setting({name: value for name, value in {**PINNED, **DEFAULTS}.items() if name != "TimeZone"})
"""The same where an application's handler has the session: its own statements may count on its role's or its database's time zone."""
NOTICE = b"""DO $$ BEGIN
    PERFORM pg_catalog.set_config('client_connection_check_interval', '10s', false);
EXCEPTION WHEN invalid_parameter_value OR undefined_object THEN NULL;
END $$"""
"""Has the server end a statement whose client is gone, which it else carries out to the end; where it cannot (PostgreSQL on another system
than Linux), nothing is lost. The relay sets it in sessions that are its own alone. A command sets it wherever it connects: behind
PgBouncer in transaction mode the server then watches the pooler, in a session that others get too, which helps and hurts nobody."""
PATH = "pg_catalog,pg_temp"
"""Where a name without a schema is looked for: else an operator or a function in a schema of the login's path that fits better than
PostgreSQL's own runs with our rights. Our statements name the schema of all else."""
_SET_PATH = f"SELECT pg_catalog.set_config('search_path', '{PATH}', false)".encode()
_AS_BUILT = b"""SELECT set_config(name, boot_val, false) FROM pg_settings
WHERE starts_with(name, 'enable_') OR name IN ('default_transaction_deferrable', 'default_transaction_isolation',
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')"""
"""Undoes what is set as a rule for the applications of a role or a database. The relay itself limits how long a statement or a rest lasts,
each of its transactions sees what is committed, and its plans count on every way. A server that does not know a setting has none."""
_UNLIMITED = b"SELECT pg_catalog.set_config('statement_timeout', '0', false)"
"""First: under a role's timeout of some milliseconds the look at all settings, compiled, would not come to its end."""
OWN = b";\n".join((_UNLIMITED, _SET_PATH, _AS_BUILT, NOTICE))
"""Statements for a session that is the relay's alone, to the end of that session."""
_OWN_OF_A_POOL = b";\n".join((_UNLIMITED, _AS_BUILT, NOTICE))
_BACKEND = b"SELECT pg_catalog.pg_backend_pid()"


async def own(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make a session the relay's alone; one that a pooler may hand on to an application keeps its `search_path`, see `is_direct`.

    Raises:
        psycopg.Error: as of any statement.
    """
    cursor = await connection.execute(_BACKEND, prepare=False)
    direct = await cursor.fetchone() == (connection.info.backend_pid,)
    await connection.execute(OWN if direct else _OWN_OF_A_POOL, prepare=False)


def pin(connection: psycopg.Connection[Any]) -> None:
    """Set them on a fresh connection, and `NOTICE`, and `PATH` where no pooler stands before the server; it is closed if that fails.

    Raises:
        psycopg.Error: as of any statement.
    """
    try:
        connection.execute(PIN)
        connection.execute(NOTICE)
        if is_direct(connection):
            connection.execute(_SET_PATH)
    except BaseException:
        connection.close()
        raise


def is_direct(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server at the other end is PostgreSQL itself. A pooler tells a number of its own for the process (libpq, PQbackendPID).

    In transaction mode it would hand `PATH` on to an application, which then finds none of its tables.

    Raises:
        psycopg.Error: as of any statement.
    """
    with connection.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(_BACKEND).fetchone() == connection.info.backend_pid


def unreadable(info: psycopg.ConnectionInfo) -> str | None:
    """Why texts of this database cannot be relied on, as one sentence; None where they can."""
    if info.parameter_status("server_encoding") != "SQL_ASCII":
        return None
    return (
        "The database has the encoding SQL_ASCII, so PostgreSQL does not know which letters its bytes are: create one with "
        "ENCODING 'UTF8' TEMPLATE template0, and point RELAY_DATABASE_URL to it."
    )
