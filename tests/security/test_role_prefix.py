"""A prefix whose roles are there already: taken where they are empty, refused where they are somebody else's or an outbox left them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql

from relay.errors import MigrationError
from relay.postgres.schema.borders import check_roles, crossings
from relay.postgres.schema.migrate import migrate
from tests.support.relays.cli import Cli
from tests.support.servers.logins import login
from tests.support.servers.named_outboxes import Outbox, name_of, prefix_of, run
from tests.support.servers.shared import Databases

INSERT = "INSERT INTO queue_message (exchange) VALUES ('e')"


def _gone(databases: Databases, url: str, how: str) -> None:
    """Drop an outbox, by its schema or its database, and leave an empty schema `public`."""
    name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
    if how == "DROP DATABASE":
        run(databases, "DROP DATABASE {} WITH (FORCE)", name)
        run(databases, "CREATE DATABASE {}", name)
    else:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")


@pytest.mark.parametrize("how", ["DROP DATABASE", "DROP SCHEMA"])
@pytest.mark.parametrize("configured", [False, True])
def test_an_outbox_does_not_inherit_the_members_of_one_that_is_gone(
    outbox: Outbox, databases: Databases, unique: str, how: str, *, configured: bool
) -> None:
    """It is refused with the statement that drops them, and is as new after that; nothing is changed before."""
    prefix = f"{unique}_shop" if configured else None
    url = outbox(unique, role_prefix=prefix)
    begins = prefix_of(url)
    with login(databases.url("postgres")) as app, login(databases.url("postgres")) as ann:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("SELECT queue_message_admit('producer', %s), queue_message_admit('etl', %s)", (name_of(app), name_of(ann)))
        _gone(databases, url, how)
        with pytest.raises(MigrationError) as refused:
            migrate(url, role_prefix=prefix)
        for role, member in ((f"{begins}_producer", app), (f"{begins}_etl", ann)):
            assert f"{role} has members of an outbox that is gone: {name_of(member)}" in str(refused.value)
        drop = str(refused.value).partition("left behind: ")[2]
        assert f"DROP ROLE {begins}_etl, {begins}_producer" == drop
        with psycopg.connect(url, autocommit=True) as owner:
            assert (None,) == owner.execute("SELECT to_regclass('public.queue_message')").fetchone()
            owner.execute(drop.encode())
        migrate(url, role_prefix=prefix)
        assert (begins, None, []) == (prefix_of(url), check_roles(url), crossings(url))
        with psycopg.connect(_at(app, unique)) as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute(INSERT)


def _at(url: str, database: str) -> str:
    return psycopg.conninfo.make_conninfo(url, dbname=database)


OF_A_MEMBER = (
    "ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT ALL ON TABLES TO PUBLIC",
    "SET ROLE {0}",
    "SELECT lo_create(0)",
    "ALTER ROLE {0} SET statement_timeout = 1",
    "ALTER ROLE {0} PASSWORD 'x'",
)
"""What a member may do to its role for ever."""


def test_what_members_did_to_a_role_does_not_keep_it_from_being_dropped(outbox: Outbox, databases: Databases, unique: str) -> None:
    """The refusal prints statements for this database and for another one, after which nothing of the role is left."""
    url, other = outbox(unique), databases.create()
    role = f"{prefix_of(url)}_producer"
    with login(url, "queue_message_producer") as app:
        for database in (unique, other):
            with psycopg.connect(_at(app, database), autocommit=True) as member:
                for statement in OF_A_MEMBER:
                    member.execute(sql.SQL(statement).format(sql.Identifier(role)))
        _gone(databases, url, "DROP SCHEMA")
        with pytest.raises(MigrationError) as refused:
            migrate(url)
        there, _, here = str(refused.value).partition("left behind: ")[2].partition("; then here ")
        assert (f"in database {other} DROP OWNED BY {role}", f"DROP OWNED BY {role}; DROP ROLE {role}") == (there, here)
        for database, statements in ((other, there.removeprefix(f"in database {other} ")), (unique, here)):
            with psycopg.connect(_at(url, database), autocommit=True) as owner:
                owner.execute(statements.encode())
        migrate(url)
        assert [] == crossings(url)


def test_a_role_that_owns_tables_is_dropped_with_none_of_them(outbox: Outbox, databases: Databases, unique: str) -> None:
    """Its rights would be revoked, but PostgreSQL refuses to drop it until somebody has looked at the table."""
    url = outbox(unique)
    producer, etl = (f"{prefix_of(url)}_{kind}" for kind in ("producer", "etl"))
    _gone(databases, url, "DROP SCHEMA")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE TABLE invoice (); CREATE TABLE shared ()")
        owner.execute(sql.SQL("GRANT SELECT ON shared TO {}").format(sql.Identifier(etl)))
        owner.execute(sql.SQL("ALTER TABLE invoice OWNER TO {}").format(sql.Identifier(producer)))
        with pytest.raises(MigrationError) as refused:
            migrate(url)
        drop = str(refused.value).partition("left behind: ")[2]
        assert f"DROP OWNED BY {etl}; DROP ROLE {etl}, {producer}" == drop
        with pytest.raises(errors.DependentObjectsStillExist):
            owner.execute(drop.encode())
        owner.execute("DROP TABLE invoice")
        owner.execute(drop.encode())
    migrate(url)


def test_roles_that_an_outbox_left_without_members_are_taken_and_say_whose_they_are(
    outbox: Outbox, databases: Databases, unique: str
) -> None:
    """Their comments name the new outbox; the members that one role has in another of them stay."""
    url = outbox(unique, role_prefix=f"{unique}_shop")
    run(databases, "GRANT {} TO {}", f"{unique}_shop_producer", f"{unique}_shop_operator")
    run(databases, "DROP DATABASE {} WITH (FORCE)", unique)
    other = outbox(f"{unique}2", role_prefix=f"{unique}_shop")
    with psycopg.connect(other) as owner:
        marks = owner.execute(
            "SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE starts_with(rolname, %s)", (f"{unique}_shop",)
        )
        assert {f"schema public in database {unique}2"} == {mark.partition(" of ")[2] for (mark,) in marks.fetchall()}
    assert ([], None) == (crossings(other), check_roles(other))
    assert url != other


@contextmanager
def _role(databases: Databases, name: str, attributes: str) -> Iterator[None]:
    run(databases, f"CREATE ROLE {{}} {attributes}", name)
    try:
        yield
    finally:
        run(databases, "DROP ROLE {}", name)


@pytest.mark.parametrize(
    ("attributes", "statement", "problem"),
    [
        ("LOGIN", "SELECT", "can log in"),
        ("CREATEDB", "SELECT", "has attributes"),
        ("", "GRANT pg_monitor TO {}", "is a member of other roles"),
        ("", "CREATE TABLE invoice (); ALTER TABLE invoice OWNER TO {}", "has rights of its own"),
        ("", "CREATE TABLE invoice (); GRANT SELECT ON invoice TO {}", "has rights of its own"),
    ],
)
@pytest.mark.parametrize("prefix", ["{}_app", None])
def test_a_role_of_somebody_elses_whose_name_fits_is_refused(
    outbox: Outbox, databases: Databases, unique: str, attributes: str, statement: str, problem: str, prefix: str | None
) -> None:
    """A login, a role with attributes, with rights, with tables, in another role; with a prefix and without one."""
    prefix = prefix and prefix.format(unique)
    name = f"{prefix or f'queue_message_{unique}_public'}_producer"
    place = outbox(unique, "other")
    with _role(databases, name, attributes), psycopg.connect(place, autocommit=True) as owner:
        owner.execute(sql.SQL(statement).format(sql.Identifier(name)))
        refusal = rf"^Roles are there already that are not this outbox's \({name} {problem}\): choose another RELAY_ROLE_PREFIX$"
        with pytest.raises(MigrationError, match=refusal):
            outbox(unique, role_prefix=prefix)
        assert f"{unique}_other" == prefix_of(outbox(unique, role_prefix=f"{unique}_other"))
        # A later change of the prefix is refused too.
        with pytest.raises(MigrationError, match=refusal):
            outbox(unique, role_prefix=name.removesuffix("_producer"))
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))


def test_roles_that_were_made_for_the_outbox_are_taken_with_their_members_and_named(
    outbox: Outbox, databases: Databases, unique: str, tmp_path: Path
) -> None:
    """As scripts do that make a server: no right, no attribute, but members."""
    prefix = f"{unique}_app"
    with login(databases.url("postgres")) as app, _role(databases, f"{prefix}_producer", "NOLOGIN"):
        run(databases, "GRANT {} TO {}", f"{prefix}_producer", name_of(app))
        url = outbox(unique, role_prefix=f"{unique}_first")
        cli = Cli(url, tmp_path)
        cli("migrate", RELAY_ROLE_PREFIX=prefix)
        assert f"The role {prefix}_producer was there already, and its members are admitted: {name_of(app)}.\n" == cli.stderr
        with psycopg.connect(_at(app, unique)) as connection:
            connection.execute(INSERT)
        migrate(url, role_prefix=f"{unique}_first_again")


def test_a_former_prefix_comes_back_without_those_who_were_dismissed_since(outbox: Outbox, databases: Databases, unique: str) -> None:
    """The roles have kept their members, so they are refused until they are dropped; those of today are members again then."""
    one, two = f"{unique}_one", f"{unique}_two"
    url = outbox(unique, role_prefix=one)
    with login(url, "queue_message_producer") as dismissed, login(url, "queue_message_producer") as stays:
        migrate(url, role_prefix=two)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("SELECT queue_message_dismiss('producer', %s)", (name_of(dismissed),))
        with pytest.raises(MigrationError) as refused:
            migrate(url, role_prefix=one)
        assert str(refused.value) == (
            f"This outbox had roles before that are there still ({one}_producer has members that are admitted no more: "
            f"{name_of(dismissed)}): "
            f"choose another RELAY_ROLE_PREFIX, or drop them: DROP ROLE {one}_producer"
        )
        run(databases, "DROP ROLE {}", f"{one}_producer")
        migrate(url, role_prefix=one)
        with psycopg.connect(stays) as connection:
            connection.execute(INSERT)
        with psycopg.connect(dismissed) as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute(INSERT)


def test_a_former_prefix_comes_back_where_its_members_gain_nothing(outbox: Outbox, unique: str) -> None:
    """Nothing has to be dropped, and they insert before and afterwards."""
    one, two = f"{unique}_one", f"{unique}_two"
    url = outbox(unique, role_prefix=one)
    with login(url, "queue_message_producer") as stays:
        for prefix in (two, one, two):
            migrate(url, role_prefix=prefix)
            assert (prefix, None, []) == (prefix_of(url), check_roles(url), crossings(url))
            with psycopg.connect(stays) as connection:
                connection.execute(INSERT)


def test_a_changed_prefix_is_work_for_migrate_and_its_old_roles_alarm_nobody(outbox: Outbox, unique: str, tmp_path: Path) -> None:
    """The check says so before, and finds nothing afterwards, though the old roles keep their members."""
    one, two = f"{unique}_one", f"{unique}_two"
    url = outbox(unique, role_prefix=one)
    cli = Cli(url, tmp_path)
    with login(url, "queue_message_producer"):
        assert "the schema is up to date\n" == cli("migrate", "--check", RELAY_ROLE_PREFIX=one)
        sentence = cli.refused("migrate", "--check", code=1, RELAY_ROLE_PREFIX=two)
        assert sentence.endswith(f"Their names begin with {one}, and RELAY_ROLE_PREFIX is {two}: run `relay migrate` again as the owner.")
        cli("migrate", RELAY_ROLE_PREFIX=two)
        for asked in ("", two):
            assert "the schema is up to date\n" == cli("migrate", "--check", RELAY_ROLE_PREFIX=asked)
            assert "" == cli.stderr
        assert "reaches another one" in cli("check", "--borders")
        sentence = cli.refused("migrate", "--check", code=1, RELAY_ROLE_PREFIX=one)
        assert sentence.endswith(f"Their names begin with {two}, and RELAY_ROLE_PREFIX is {one}: run `relay migrate` again as the owner.")
