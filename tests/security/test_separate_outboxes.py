"""Applications that do not trust each other, in one schema and in two schemas of one database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from relay.postgres.schema.migrate import migrate
from tests.support.pages.grants import ROLES
from tests.support.servers.logins import HELD, login
from tests.support.servers.shared import Databases

ONCE = "INSERT INTO {}.queue_message_keyed (exchange, dedup_key) VALUES ('e', 'k') RETURNING id"
NEWEST = "INSERT INTO {}.queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'k')"


@pytest.fixture
def two(empty_database_url: str) -> str:
    """The URL of a database with the outboxes `one` and `two`."""
    for schema in ("one", "two"):
        migrate(empty_database_url, schema=schema)
    return empty_database_url


@pytest.fixture
def owner(two: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner of both."""
    with psycopg.connect(two, autocommit=True) as connection:
        yield connection


def _in(schema: str, statement: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(schema))


def _name(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["user"])


def _admit(owner: psycopg.Connection[Any], schema: str, role: str, url: str) -> None:
    owner.execute(_in(schema, "SELECT {}.queue_message_grant(%s, quote_ident(%s))"), (role, _name(url)))


@pytest.mark.parametrize("role", ROLES)
def test_a_login_that_one_outbox_admits_has_its_rights_there_alone(two: str, owner: psycopg.Connection[Any], role: str) -> None:
    """All that the role has in that schema, and nothing in the other one."""
    with login(two) as url:
        _admit(owner, "two", role, url)
        for schema, held in (("one", False), ("two", True)):
            assert [(held,)] == owner.execute(_in(schema, HELD), {"who": _name(url), "role": role}).fetchall(), schema


def test_a_member_of_a_role_has_its_rights_in_that_outbox_alone(two: str, owner: psycopg.Connection[Any]) -> None:
    """For each kind of role, all that it has in its own schema and nothing in the other one."""
    for role in ROLES:
        with login(two, role, schema="two") as url:
            held = [owner.execute(_in(schema, HELD), {"who": _name(url), "role": role}).fetchall() for schema in ("one", "two")]
            assert [[(False,)], [(True,)]] == held, role


def test_a_member_of_a_role_has_nothing_in_another_database(databases: Databases, database_url: str) -> None:
    """For each kind of role; the other database lets every login connect."""
    other = databases.create()
    migrate(databases.url(other))
    with psycopg.connect(database_url) as here, psycopg.connect(databases.url(other)) as there:
        for role in ROLES:
            with login(database_url, role) as url:
                held = [owner.execute(_in("public", HELD), {"who": _name(url), "role": role}).fetchall() for owner in (here, there)]
                # Everybody has USAGE of the schema public.
                assert ([(True,)], True) == (held[0], (False,) in held[1]), role
                with psycopg.connect(make_conninfo(url, dbname=other)) as connection, pytest.raises(errors.InsufficientPrivilege):
                    connection.execute("SELECT queue_message_role('producer')")
    databases.drop(other)


def test_producers_of_one_outbox_share_their_keys_and_those_of_two_do_not(two: str, owner: psycopg.Connection[Any]) -> None:
    """Several logins of one application count as one; another application has an outbox of its own."""
    with login(two) as first, login(two) as second, login(two) as stranger:
        for schema, url in (("one", first), ("one", second), ("two", stranger)):
            _admit(owner, schema, "queue_message_producer", url)
        inserted = []
        for schema, url in (("one", first), ("one", second), ("two", stranger)):
            with psycopg.connect(url, autocommit=True) as producer:
                inserted.append(len(producer.execute(_in(schema, ONCE)).fetchall()))
                producer.execute(_in(schema, NEWEST))
        assert [1, 0, 1] == inserted
        for schema, superseded in (("one", 1), ("two", 0)):
            assert [(superseded,)] == owner.execute(_in(schema, "SELECT superseded FROM {}.queue_message_fold()")).fetchall()
        with psycopg.connect(stranger, autocommit=True) as producer, pytest.raises(errors.InsufficientPrivilege):
            producer.execute(_in("one", ONCE))


def test_no_role_admits_a_login(two: str, owner: psycopg.Connection[Any]) -> None:
    """Only the owner of an outbox says who may reach it."""
    with login(two) as url:
        for role in ROLES:
            _admit(owner, "two", role, url)
        with psycopg.connect(url, autocommit=True) as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute(_in("two", "SELECT {}.queue_message_grant('queue_message_relay', 'public')"))
