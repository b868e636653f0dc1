"""Outboxes in databases of a chosen name, and the roles that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.postgres.schema.migrate import migrate
from tests.support.servers.logins import own_role
from tests.support.servers.shared import Databases

Outbox = Callable[..., str]
UNUSED = """
    SELECT r.rolname FROM pg_roles r, unnest(%s::text[]) AS name
    WHERE starts_with(shobj_description(r.oid, 'pg_authid'), 'outbox-relay: ')
        AND split_part(shobj_description(r.oid, 'pg_authid'), ' in database ', 2)
            = regexp_replace(quote_ident(name) COLLATE "C", '[^ -~]', '?', 'g')
        AND NOT EXISTS (SELECT FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = r.oid)
"""
"""Roles without rights that outboxes in these databases left."""


@contextmanager
def named_outboxes(databases: Databases) -> Iterator[Outbox]:
    """Makes an outbox in a database of this name, which is made where it is missing; yields its URL."""
    made: list[str] = []

    def make(name: str, schema: str = "public", *, role_prefix: str | None = None) -> str:
        url = make_conninfo(databases.url("postgres"), dbname=name)
        if name not in made:
            run(databases, "CREATE DATABASE {}", name)
            made.append(name)
        migrate(url, schema=schema, role_prefix=role_prefix)
        return url

    yield make
    with psycopg.connect(databases.url("postgres"), autocommit=True) as connection:
        for name in made:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        for (role,) in connection.execute(UNUSED, (made,)).fetchall():
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def run(databases: Databases, statement: str, *names: str) -> None:
    """Run a statement as the superuser, with these names as identifiers."""
    with psycopg.connect(databases.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def prefix_of(url: str, schema: str = "public") -> str:
    """What the names of an outbox's roles begin with."""
    with psycopg.connect(url) as connection:
        return own_role(connection, "", schema)[:-1]


def name_of(url: str) -> str:
    """The login of a connection string."""
    return str(conninfo_to_dict(url)["user"])
