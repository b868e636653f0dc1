"""Logins that own nothing, for tests of permissions."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo


@contextmanager
def login(url: str, *roles: str, attributes: str = "", password: str = "") -> Iterator[str]:
    """Make a login that is a member of `roles`; yield the same database's connection string for it, and drop it in the end."""
    name, password = f"relay_test_{secrets.token_hex(5)}", password or secrets.token_hex(8)
    who = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL(f"CREATE ROLE {{}} LOGIN {attributes} PASSWORD {{}}").format(who, sql.Literal(password)))
        for role in roles:
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), who))
        try:
            yield make_conninfo(url, user=name, password=password)
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(who))
            owner.execute(sql.SQL("DROP ROLE {}").format(who))
