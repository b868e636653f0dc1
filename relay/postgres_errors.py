"""PostgreSQL's errors for people: the server's own words in one line, without passwords and without the values of rows."""

from __future__ import annotations

import re

import psycopg

READ_ONLY = "PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary (target_session_attrs=read-write)"
_CONNECTING = (
    (
        r"password authentication failed|no password supplied",
        "PostgreSQL refused the password: correct RELAY_DATABASE_URL (in a URL it must be percent-encoded) or PGPASSWORD",
    ),
    (r"role .* does not exist|no pg_hba\.conf entry", "PostgreSQL refused the user: correct RELAY_DATABASE_URL or pg_hba.conf"),
    (r"database .* does not exist", "The database does not exist: create it or correct RELAY_DATABASE_URL"),
    (
        r"too many clients|connection slots are reserved|too many connections",
        "PostgreSQL has no connection left: raise max_connections or stop what holds them",
    ),
    (r"read-only|hot standby", READ_ONLY),
    (
        r"invalid response to \w+ negotiation|expected authentication request",
        "No PostgreSQL answers there: correct the host and the port in RELAY_DATABASE_URL",
    ),
    (r"permission denied for database", "PostgreSQL refused the user: GRANT CONNECT ON DATABASE to it, or correct RELAY_DATABASE_URL"),
    (r"certificate|SSL", "TLS with PostgreSQL failed: correct sslmode and sslrootcert in RELAY_DATABASE_URL"),
)
"""What a refused connection says, in English. libpq passes on no SQLSTATE for it, so the words are all there is."""


def reason(error: psycopg.Error) -> str:
    """The server's primary message, else the driver's first line, which may repeat a connection string; never DETAIL, which quotes rows."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = " ".join((error.diag.message_primary or lines[0]).split()).rstrip(".")
    return re.sub(r"://\S*@|password\s*=\s*('[^']*'|\S+)", "***", text)


def no_connection(error: psycopg.Error) -> str:
    """One sentence on a connection that could not be made or is gone, with what to do."""
    words = reason(error)
    advice = next((text for pattern, text in _CONNECTING if re.search(pattern, words)), None)
    return f"{advice or 'PostgreSQL does not answer: check that it runs and RELAY_DATABASE_URL'} ({words})."
