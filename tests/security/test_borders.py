"""Names of roles that never meet, logins that cross a border and are named, copies that share roles until they are given others."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.errors import MigrationError
from relay.postgres.schema.borders import check_roles, crossings
from relay.postgres.schema.migrate import migrate
from tests.support.relays.cli import Cli
from tests.support.servers.logins import KINDS, login, own_role
from tests.support.servers.named_outboxes import Outbox, name_of, prefix_of, run
from tests.support.servers.shared import Databases

INSERT = "INSERT INTO queue_message (exchange) VALUES ('e')"


@pytest.mark.parametrize(
    ("database", "schema"),
    [("Shop", "Out Box"), ("d" * 63, "s" * 63), ("qu\"o'te", "a\"b'c"), ("größe-läden", "größe"), ("select", "relay"), ("d$body$", "$q$")],
)
def test_any_legal_names_make_roles_that_work(outbox: Outbox, unique: str, database: str, schema: str) -> None:
    """Of 63 bytes at the most, in plain letters, with the comment that names the outbox; a login of one inserts."""
    url = outbox(f"{unique}{database}"[:63], schema)
    assert check_roles(url, schema=schema) is None
    with psycopg.connect(url) as owner:
        roles = [own_role(owner, kind, schema) for kind in KINDS]
        marks = owner.execute("SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = ANY (%s)", (roles,)).fetchall()
    assert all(role.isascii() and role == role.lower() and len(role) <= 63 for role in roles)
    assert [f"outbox-relay: {kind[14:]} of schema" for kind in KINDS] == sorted(mark[: mark.index(" schema") + 7] for (mark,) in marks)
    with login(url, "queue_message_producer", schema=schema) as app, psycopg.connect(app) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        connection.execute(INSERT)
    assert [] == crossings(url, schema=schema)


def test_names_that_look_alike_make_different_roles(outbox: Outbox, unique: str) -> None:
    """`a_b` and `c` differ from `a` and `b_c`, as do names in another case or with other letters."""
    places = [(f"{unique}_b", "c"), (unique, "b_c"), (unique, "B_c"), (unique, "b-c"), (unique, "b__c"), (unique.upper(), "b_c")]
    assert len(places) == len({prefix_of(outbox(*place), place[1]) for place in places})


def test_plain_names_are_readable(outbox: Outbox, unique: str) -> None:
    """Database and schema, and the kind."""
    assert f"queue_message_{unique}_public" == prefix_of(outbox(unique))


def test_a_renamed_database_keeps_its_roles_and_its_old_name_gets_others(outbox: Outbox, databases: Databases, unique: str) -> None:
    """The prefix belongs to the schema, not to the moment; no other outbox gets a name that is in use."""
    url = outbox(unique)
    prefix, renamed = prefix_of(url), make_conninfo(url, dbname=f"{unique}_renamed")
    with login(databases.url("postgres")) as app:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("SELECT queue_message_admit('producer', %s)", (name_of(app),))
        run(databases, "ALTER DATABASE {} CONNECTION LIMIT 0", unique)
        with psycopg.connect(databases.url("postgres")) as superuser:
            superuser.execute("SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE datname = %s", (unique,))
        run(databases, "ALTER DATABASE {} RENAME TO {}", unique, f"{unique}_renamed")
        run(databases, "ALTER DATABASE {} CONNECTION LIMIT -1", f"{unique}_renamed")
        try:
            assert [] == migrate(renamed)
            with psycopg.connect(make_conninfo(app, dbname=f"{unique}_renamed"), autocommit=True) as connection:
                connection.execute(INSERT)
            run(databases, "CREATE DATABASE {}", unique)
            migrate(url)
            assert prefix == prefix_of(renamed) != prefix_of(url)
            with psycopg.connect(make_conninfo(app, dbname=unique)) as connection, pytest.raises(errors.InsufficientPrivilege):
                connection.execute(INSERT)
            assert ([], []) == (crossings(renamed), crossings(url))
        finally:
            run(databases, "DROP DATABASE {} WITH (FORCE)", f"{unique}_renamed")


def test_a_copy_shares_its_roles_until_it_is_given_others(databases: Databases, database_url: str, unique: str) -> None:
    """It is named; with another prefix its members stay members, without a gap, and can be dismissed one by one."""
    copy = databases.create(template=str(conninfo_to_dict(database_url)["dbname"]))
    url = databases.url(copy)
    shared = prefix_of(url)
    [sentence] = crossings(url)
    assert sentence.startswith(f"The roles of this outbox, whose names begin with {shared}, have rights in database ")
    with login(url, "queue_message_producer") as app, psycopg.connect(app, autocommit=True) as producer:
        migrate(url, role_prefix=unique)
        producer.execute(INSERT)
        assert (unique, None) == (prefix_of(url), check_roles(url))
        [sentence] = crossings(url)
        ways = f"(member of {unique}_producer) and another one (member of {shared}_producer "
        assert sentence.startswith(f"The login {name_of(app)} reaches this outbox {ways}")
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("SELECT queue_message_dismiss('producer', %s)", (name_of(app),))
        with pytest.raises(errors.InsufficientPrivilege):
            producer.execute(INSERT)
    assert ([], unique) == (crossings(url), prefix_of(url))
    assert [] == migrate(url)
    assert unique == prefix_of(url)
    databases.drop(copy)
    _drop_roles(databases, unique)


def _drop_roles(databases: Databases, prefix: str) -> None:
    for kind in KINDS:
        run(databases, "DROP ROLE IF EXISTS {}", f"{prefix}_{kind[14:]}")


def test_one_prefix_is_refused_to_two_outboxes(outbox: Outbox, unique: str) -> None:
    """In another database and in another schema, with a sentence, and nothing is changed."""
    url = outbox(unique, role_prefix=unique)
    assert unique == prefix_of(url)
    for database, schema, place in ((f"{unique}_2", "public", f"database {unique}"), (unique, "two", "schema public")):
        with pytest.raises(MigrationError, match=f"^Roles that begin with {unique} have rights in {place} already.*RELAY_ROLE_PREFIX"):
            outbox(database, schema, role_prefix=unique)
        with psycopg.connect(make_conninfo(url, dbname=database)) as connection:
            assert (None,) == connection.execute("SELECT to_regclass(format('%%I.queue_message', %s::text))", (schema,)).fetchone()


def test_a_login_of_two_outboxes_is_named_in_both(pair: tuple[str, str]) -> None:
    """Also one that is a member by another role, and a superuser that was admitted."""
    here, there = pair
    group = f"group_{secrets.token_hex(4)}"
    with psycopg.connect(here, autocommit=True) as owner, ExitStack() as stack:
        direct, indirect, superuser, innocent = (stack.enter_context(login(here)) for _ in range(4))
        owner.execute(f"CREATE ROLE {group}; ALTER ROLE {name_of(superuser)} SUPERUSER; GRANT {group} TO {name_of(indirect)}".encode())
        stack.callback(owner.execute, f"DROP ROLE {group}".encode())
        for url, kind, names in (
            (here, "producer", [name_of(direct), group, name_of(superuser), name_of(innocent)]),
            (there, "relay", [name_of(direct), name_of(indirect), name_of(superuser)]),
        ):
            with psycopg.connect(url, autocommit=True) as admin:
                for name in names:
                    admin.execute("SELECT queue_message_admit(%s, %s)", (kind, name))
        for url, kind, own, other in (
            (here, "producer", f"{prefix_of(here)}_producer", f"{prefix_of(there)}_relay"),
            (there, "relay", f"{prefix_of(there)}_relay", f"{prefix_of(here)}_producer"),
        ):
            found = dict(zip(sorted(map(name_of, (direct, indirect, superuser))), crossings(url), strict=True))
            ways = f"(member of {own}) and another one (member of {other} ("
            assert all(sentence.startswith(f"The login {name} reaches this outbox {ways}") for name, sentence in found.items())
            assert found[name_of(direct)].endswith(f" on one side (here: relay revoke {kind} '{name_of(direct)}').")


def test_crossings_fail_the_check_of_borders_and_no_deployment(pair: tuple[str, str], tmp_path: Path) -> None:
    """`relay check --borders` exits 1; `relay migrate --check` says the same and exits 0. An operator may ask."""
    here, there = (Cli(url, tmp_path) for url in pair)
    with login(pair[0], "queue_message_operator") as ann:
        name = name_of(ann)
        assert "reaches another one" in here("check", "--borders", RELAY_DATABASE_URL=ann)
        assert "the schema is up to date\n" == here("migrate", "--check")
        assert "" == here.stderr
        assert "the schema is up to date\n" == here("migrate", "--check", RELAY_DATABASE_URL=ann)
        assert f"'{name}' is a member of {prefix_of(pair[1])}_etl\n" == there("grant", "etl", name)
        assert f"The login {name} reaches this outbox" in here("check", "--borders", code=1, RELAY_DATABASE_URL=ann)
        assert 1 == len(here.json("check", "--borders", code=1)["crossings"])
        assert "the schema is up to date\n" == here("migrate", "--check")
        assert f"The login {name} reaches this outbox" in here.stderr
        assert f"'{name}' is no longer a member of {prefix_of(pair[1])}_etl\n" == there("revoke", "etl", name)
        assert "reaches another one" in here("check", "--borders")


def test_granting_says_what_is_wrong(cli: Cli, database_url: str) -> None:
    """A kind that there is not, a login that there is not, no member, no right to grant, both checks at once."""
    with login(database_url) as ann:
        assert "producer" in cli.refused("grant", "queue_message_producer", name_of(ann), code=2)
        assert cli.refused("grant", "producer", "who's", code=1).startswith('role "who\'s" does not exist')
        assert cli.refused("revoke", "producer", "who's", code=1).startswith('role "who\'s" does not exist')
        assert "is not a member of" in cli.refused("revoke", "producer", name_of(ann), code=3)
    with login(database_url, "queue_message_operator") as ann:
        for command in ("grant", "revoke"):
            assert "Your role may not grant this" in cli.refused(command, "relay", name_of(ann), code=1, RELAY_DATABASE_URL=ann)
    assert "--borders" in cli.refused("check", "--queue", "--borders", code=2)


def test_a_prefix_that_makes_no_names_is_refused(cli: Cli) -> None:
    """Its roles would be cut, reserved or in need of quotes."""
    for prefix in ("Shop", "pg_shop", "1shop", "s" * 55, "a-b"):
        assert "RELAY_ROLE_PREFIX" in cli.refused("migrate", code=2, RELAY_ROLE_PREFIX=prefix)
