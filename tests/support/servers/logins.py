"""Logins that own nothing, for tests of permissions."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

KINDS = tuple(f"queue_message_{name}" for name in ("consumer", "etl", "operator", "producer", "receiver", "relay", "replayer"))
"""Kinds of roles, as queue_message_privileges() names them."""
HELD = """
    SELECT DISTINCT CASE
        WHEN kind = 'SCHEMA' THEN has_schema_privilege(%(who)s, oid, privilege)
        WHEN kind = 'FUNCTION' THEN has_function_privilege(%(who)s, oid, privilege)
        WHEN privilege = 'DELETE' THEN has_table_privilege(%(who)s, oid, privilege)
        ELSE has_any_column_privilege(%(who)s, oid, privilege) END
    FROM {}.queue_message_grants() WHERE role = %(role)s
"""
"""Whether a login has what the role has in a schema: only true, only false, or both."""
_OUTBOXES = "SELECT pronamespace::regnamespace::text FROM pg_proc WHERE proname = 'queue_message_role'"


def own_role(connection: psycopg.Connection[Any], kind: str, schema: str | None = None) -> str:
    """The role of a kind that belongs to the outbox in `schema`, or to the only one of the database."""
    if schema is None:
        [(place,)] = connection.execute(_OUTBOXES).fetchall()
    else:
        place = sql.Identifier(schema).as_string(None)
    [(name,)] = connection.execute(f"SELECT {place}.queue_message_role(%s)".encode(), (kind,)).fetchall()
    return str(name)


@contextmanager
def login(url: str, *roles: str, attributes: str = "", password: str = "", schema: str | None = None) -> Iterator[str]:
    """Make a login that is a member of `roles`; yield the same database's connection string for it, and drop it in the end.

    A kind of role means that of the outbox in `schema`, or of the only one of the database.
    """
    name, password = f"relay_test_{secrets.token_hex(5)}", password or secrets.token_hex(8)
    who = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL(f"CREATE ROLE {{}} LOGIN {attributes} PASSWORD {{}}").format(who, sql.Literal(password)))
        for role in roles:
            granted = own_role(owner, role, schema) if role in KINDS else role
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(granted), who))
        try:
            yield make_conninfo(url, user=name, password=password)
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(who))
            owner.execute(sql.SQL("DROP ROLE {}").format(who))
