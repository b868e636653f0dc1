"""What every connection holds to, whatever the environment, the role, the database or the server's settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

ENCODING = "UTF8"
"""The client_encoding, given when connecting, since a role's setting yields to that: in LATIN1 one letter would refuse whole claims."""
PINNED: Mapping[str, str] = {"DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "standard_conforming_strings": "on"}
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
PIN = ("SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in {**PINNED, **DEFAULTS}.items())).encode()
"""The statement that sets them."""
NOTICE = b"""DO $$ BEGIN
    PERFORM pg_catalog.set_config('client_connection_check_interval', '10s', false);
EXCEPTION WHEN invalid_parameter_value OR undefined_object THEN NULL;
END $$"""
"""Has the server end a statement whose client is gone, which it else carries out to the end; where it cannot (PostgreSQL on another system
than Linux), nothing is lost. The relay sets it in sessions that are its own alone. A command sets it wherever it connects: behind
PgBouncer in transaction mode the server then watches the pooler, in a session that others get too, which helps and hurts nobody."""


def pin(connection: psycopg.Connection[Any]) -> None:
    """Set them on a fresh connection, and `NOTICE`; it is closed if that fails.

    Raises:
        psycopg.Error: as of any statement.
    """
    try:
        connection.execute(PIN)
        connection.execute(NOTICE)
    except BaseException:
        connection.close()
        raise


def unreadable(info: psycopg.ConnectionInfo) -> str | None:
    """Why texts of this database cannot be relied on, as one sentence; None where they can."""
    if info.parameter_status("server_encoding") != "SQL_ASCII":
        return None
    return (
        "The database has the encoding SQL_ASCII, so PostgreSQL does not know which letters its bytes are: create one with "
        "ENCODING 'UTF8' TEMPLATE template0, and point RELAY_DATABASE_URL to it."
    )
