"""PostgreSQL's errors for operators: the server's own words in one line, without passwords and without the values of rows."""

from __future__ import annotations

import re

import psycopg

LONGEST = 1000
"""Characters of the server's message that are kept: an application's trigger may quote a whole payload."""
_READ = 4 * LONGEST
"""Characters of the message that are read, so that a password is not cut before its end is found."""
READ_ONLY = "PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary (target_session_attrs=read-write)"
FROZEN = (
    "PostgreSQL is a primary that default_transaction_read_only keeps from writing: turn it off with ALTER ROLE, ALTER DATABASE or "
    "ALTER SYSTEM, unless it was frozen on purpose"
)
"""READ_ONLY advises on a standby and on a server of unknown kind, FROZEN on a primary."""
UNWRITABLE = "The database's encoding lacks a letter of what is written there, such as one of RELAY_NAME: write it in other letters"
UNREADABLE = (
    "A row holds a letter that UTF-8 lacks: relays archive such a message when they meet it, and the schema's owner archives all by "
    "`SELECT queue_message_mend_letters()`"
)
"""Advice for a character that cannot be written, and for a character that cannot be read."""
_NO_PATH = (
    "A trigger of yours names something without its schema: write the schema, or run ALTER FUNCTION … SET search_path for its function"
)
_BROKEN = "A trigger of yours fails: correct its function, or GRANT to the login what it needs"
_UNKNOWN_NAMES = ("42P01", "42883", "42704")
"""SQLSTATEs for a missing table, function or object."""
RIGHTS_AND_NAMES = ("28", "42")
"""Classes of SQLSTATE for a session that lacks its rights or its schema, unless an application's trigger raised the error."""
_LINE = 500
"""Characters read from each line of an error's context, because a line may quote a whole payload."""
_CONNECTING = (
    (
        r"cannot allocate memory|out of memory",
        "The relay has no memory for what PostgreSQL sends: give it more, or lower RELAY_WINDOW_BYTES and the policy max_body_bytes",
    ),
    (
        r"password authentication failed|no password supplied",
        "PostgreSQL refused the password: correct RELAY_DATABASE_URL (in a URL it must be percent-encoded) or PGPASSWORD",
    ),
    (r"role .* does not exist|no pg_hba\.conf entry", "PostgreSQL refused the user: correct RELAY_DATABASE_URL or pg_hba.conf"),
    (
        r"conversion between UTF8 and \w+ is not supported",
        "PostgreSQL has no way from this database's encoding to UTF-8: create one with ENCODING 'UTF8' TEMPLATE template0",
    ),
    (r"database .* does not exist", "The database does not exist: create it or correct RELAY_DATABASE_URL"),
    (
        r"too many clients|connection slots are reserved|too many connections",
        "PostgreSQL has no connection left: raise max_connections or stop what holds them",
    ),
    (r"session is read-only", f"{READ_ONLY}, or, if it is the primary, turn default_transaction_read_only off"),
    (r"read-only|hot standby", READ_ONLY),
    (
        r"invalid response to \w+ negotiation|expected authentication request",
        "No PostgreSQL answers there: correct the host and the port in RELAY_DATABASE_URL",
    ),
    (r"permission denied for database", "PostgreSQL refused the user: GRANT CONNECT ON DATABASE to it, or correct RELAY_DATABASE_URL"),
    (
        r"does not match host name",
        "PostgreSQL shows a certificate for another name: write a name that it is for as the host into RELAY_DATABASE_URL",
    ),
    (
        r"certificate verify failed",
        "PostgreSQL shows a certificate that has expired, or that no authority in sslrootcert signed: renew it, or correct sslrootcert",
    ),
    (
        r"client certificate|certificate authentication|alert (certificate|bad certificate|unknown ca)|private key|certificate present",
        "PostgreSQL asks for a certificate that it trusts, as this user's: renew what sslcert and sslkey in RELAY_DATABASE_URL name",
    ),
    (r"certificate|SSL", "TLS with PostgreSQL failed: correct sslmode and sslrootcert in RELAY_DATABASE_URL"),
)
"""Messages of refused connections, in English, each with advice. libpq passes on no SQLSTATE for them, so only the words can be matched."""


def reason(error: psycopg.Error) -> str:
    """The server's primary message, or otherwise the driver's first line without its password. Never DETAIL, which quotes rows."""
    words = error.diag.message_primary or str(error)[:_READ].strip().partition("\n")[0] or type(error).__name__
    text = veiled(" ".join(words[:_READ].split()).rstrip("."), error.sqlstate)
    return re.sub(r"://\S*@|password\s*=\s*('[^']*'|\S+)", "***", text)[:LONGEST]


def dependents(error: psycopg.errors.DependentObjectsStillExist) -> str:
    """The objects that prevent another object from being dropped. The server's DETAIL names them; in this case it quotes no rows."""
    return " ".join((error.diag.message_detail or "").split())[:LONGEST]


def veiled(message: str, sqlstate: str | None) -> str:
    """The server's message; for a data exception (SQLSTATE class 22), only the exception's name.

    The message of a data exception quotes a value, perhaps from a payload that a constraint casts. Its quotation marks depend on the
    server's language.
    """
    if not (sqlstate or "").startswith("22"):
        return message
    return f"a value is refused: {_condition(sqlstate or '')}, SQLSTATE {sqlstate}"


def untranslatable(error: psycopg.Error) -> str | None:
    """Advice for a character that one encoding lacks. In any language, the server first names the encoding that has the character."""
    if not isinstance(error, psycopg.errors.UntranslatableCharacter):
        return None
    written = re.search(r"\bUTF8\b.*\b[A-Z][A-Z0-9_]{3,}\b", error.diag.message_primary or "")
    return UNWRITABLE if written else UNREADABLE


def broken_trigger(error: psycopg.Error) -> str | None:
    """Advice for an application's broken trigger. In any language, the error's context names the trigger's function."""
    state = error.sqlstate or ""
    return broken(state) if state.startswith(RIGHTS_AND_NAMES) and _is_in_a_trigger(error.diag.context or "") else None


def broken(sqlstate: str) -> str | None:
    """Advice for an error that is known to come from a trigger; None for a SQLSTATE that needs no advice."""
    if not sqlstate.startswith(RIGHTS_AND_NAMES):
        return None
    return _NO_PATH if sqlstate in _UNKNOWN_NAMES else _BROKEN


def _is_in_a_trigger(context: str) -> bool:
    """Whether a context names a function that is not the relay's, in PL/pgSQL or in a language that the relay does not use."""
    for line in context.splitlines():
        called = re.search(r"PL/pgSQL.*?((?a:[\w$]+))\"?\(\)", line[:_LINE])
        if (called and not called[1].startswith("queue_message")) or re.search(r"PL/(?!pgSQL)\w", line[:_LINE]):
            return True
    return False


def _condition(sqlstate: str) -> str:
    """SQL's name of the condition, in words; for an SQLSTATE that an application invented, the name of its class."""
    try:
        name = psycopg.errors.lookup(sqlstate).__name__
    except KeyError:
        return "data exception"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def read_only(info: psycopg.ConnectionInfo) -> str:
    """Why the server cannot be written to. PostgreSQL's own message is the same for a standby and for a read-only primary.

    A pooler does not say which of the two its server is.
    """
    return FROZEN if info.parameter_status("in_hot_standby") == "off" else READ_ONLY


def no_connection(error: psycopg.Error) -> str:
    """One sentence about a connection that failed or is lost, with advice."""
    words = reason(error)
    advice = next((text for pattern, text in _CONNECTING if re.search(pattern, words)), None)
    return f"{advice or 'PostgreSQL does not answer: check that it runs and RELAY_DATABASE_URL'} ({words})."
