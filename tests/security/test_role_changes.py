"""Changes that a member makes to the outbox's own role outlive its session: the check names them, with statements that remove them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.postgres.schema.borders import crossings
from relay.postgres.schema.migrate import migrate
from tests.support.relays.cli import Cli
from tests.support.servers.encodings import BYTE, MAKE_BYTES
from tests.support.servers.logins import KINDS, login, own_role
from tests.support.servers.named_outboxes import name_of, named_outboxes, run
from tests.support.servers.shared import Databases

LEFT = """
    SELECT count(*) FROM pg_roles r WHERE r.rolname = %(role)s AND (r.rolconfig IS NOT NULL
        OR EXISTS (SELECT FROM pg_authid a WHERE a.oid = r.oid AND a.rolpassword IS NOT NULL)
        OR EXISTS (SELECT FROM pg_db_role_setting s WHERE s.setrole = r.oid)
        OR EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND s.deptype = 'o'))
"""
"""Whether a role has a password or settings, or owns anything in any database."""
CHANGES: tuple[tuple[str, str], ...] = (
    ("ALTER ROLE {0} PASSWORD 'x'", "has a password"),
    ("ALTER ROLE {0} SET statement_timeout = 1", "has settings: "),
    ("ALTER ROLE {0} IN DATABASE {1} SET search_path = ''", "has settings in database "),
    ("ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT ALL ON TABLES TO PUBLIC", "has default privileges for tables: "),
    ("ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT USAGE ON SEQUENCES TO {2} WITH GRANT OPTION", "has default privileges for sequences: "),
    ("ALTER DEFAULT PRIVILEGES FOR ROLE {0} REVOKE ALL ON FUNCTIONS FROM PUBLIC, {0}", "has default privileges for functions: "),
    ("ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT USAGE ON TYPES TO {2}", "has default privileges for types: "),
    ("ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT CREATE ON SCHEMAS TO {2}, PUBLIC", "has default privileges for schemas: "),
    ("SELECT lo_create(0), lo_create(0)", "owns 2 large objects: "),
)
"""What a member may do as its role, and how the check names it."""


@pytest.fixture(scope="module")
def place(databases: Databases) -> Iterator[str]:
    """URL of a database with one outbox; tests leave it as it was."""
    with named_outboxes(databases) as make:
        yield make(f"t{secrets.token_hex(4)}")


def _as_member(app: str, role: str, statement: str, *, database: str | None = None) -> None:
    """Run a statement after SET ROLE, with the names of the role, the database and the login."""
    names = role, str(conninfo_to_dict(app)["dbname"]), name_of(app)
    with psycopg.connect(make_conninfo(app, **({"dbname": database} if database else {})), autocommit=True) as member:
        member.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        member.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _remedy(sentence: str) -> str:
    return sentence.partition(": run ")[2].removesuffix(".")


def _left(url: str, role: str) -> int:
    with psycopg.connect(url) as owner:
        [(count,)] = owner.execute(LEFT, {"role": role}).fetchall()
    return int(count)


@pytest.mark.parametrize(("change", "problem"), CHANGES)
def test_a_change_of_the_role_is_named_with_the_statement_that_removes_it(place: str, change: str, problem: str) -> None:
    """One sentence names the role; afterwards nothing of the change is left, and the role has its grants still."""
    with login(place, "queue_message_producer") as app, psycopg.connect(place, autocommit=True) as owner:
        role = own_role(owner, "producer")
        assert ([], 0) == (crossings(place), _left(place, role))
        _as_member(app, role, change)
        [sentence] = crossings(place)
        assert sentence.startswith(f"The role {role} {problem}".removesuffix(": "))
        owner.execute(_remedy(sentence).encode())
        assert ([], 0, []) == (crossings(place), _left(place, role), migrate(place))
        with psycopg.connect(app) as producer:
            producer.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
            producer.rollback()


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_each_role_of_the_outbox_are_named(place: str, kind: str, tmp_path: Path) -> None:
    """The command fails for each; a login that may not read passwords sees the rest."""
    with login(place, kind) as app, login(place, "queue_message_operator") as ann, psycopg.connect(place, autocommit=True) as owner:
        role, cli = own_role(owner, kind), Cli(place, tmp_path)
        for change, _ in CHANGES:
            _as_member(app, role, change)
        found = crossings(place)
        assert len(CHANGES) == sum(one.startswith(f"The role {role} ") for one in found) == len(found)
        shown = cli("check", "--borders", code=1, RELAY_DATABASE_URL=ann).splitlines()
        assert [one for one in found if "password" not in one] == [one for one in shown if one.startswith("The role ")]
        owner.execute("; ".join(map(_remedy, found)).encode())
        assert [] == crossings(place)


def test_default_privileges_of_one_schema_and_objects_of_the_role_are_named(place: str) -> None:
    """Such as where everybody may create; a temporary table of an open session is not the role's for long."""
    with login(place, "queue_message_relay") as app, psycopg.connect(place, autocommit=True) as owner:
        role = own_role(owner, "relay")
        owner.execute("CREATE SCHEMA open; GRANT ALL ON SCHEMA open TO PUBLIC")
        _as_member(app, role, "CREATE TABLE open.mine (i serial)")
        _as_member(app, role, "CREATE FUNCTION open.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
        _as_member(app, role, "CREATE TYPE open.pair AS (i int); CREATE STATISTICS open.s ON (i + 1) FROM open.mine")
        _as_member(app, role, "ALTER DEFAULT PRIVILEGES IN SCHEMA open GRANT ALL ON TABLES TO PUBLIC, {2}")
        with psycopg.connect(app, autocommit=True) as session:
            session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            session.execute("CREATE TEMPORARY TABLE passing ()")
            found = crossings(place)
        assert [f"The role {role} has default privileges for tables in schema open", f"The role {role} owns 5 objects"] == [
            one.partition(": ")[0] for one in found
        ]
        for one in found:
            owner.execute(_remedy(one).encode())
        assert ([], 0) == (crossings(place), _left(place, role))
        owner.execute("DROP SCHEMA open")


def test_a_name_whose_bytes_are_no_text_hides_no_change(place: str) -> None:
    """A member that may create objects chooses any bytes, which come from a table that took them by COPY."""
    with login(place, "queue_message_producer") as app, psycopg.connect(place, autocommit=True) as owner:
        role = own_role(owner, "producer")
        owner.execute(sql.SQL("CREATE SCHEMA AUTHORIZATION {}").format(sql.Identifier(name_of(app))))
        owner.execute(sql.SQL("GRANT ALL ON SCHEMA {} TO {}").format(sql.Identifier(name_of(app)), sql.Identifier(role)))
        owner.execute(MAKE_BYTES)
        try:
            owner.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            owner.execute(f"DO $$ BEGIN EXECUTE format('CREATE TABLE {name_of(app)}.%I ()', {BYTE}); END $$".encode())
            assert any("<ff>" in sentence for sentence in crossings(place))
        finally:
            owner.execute("RESET ROLE")
            owner.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name_of(app))))
            owner.execute("DROP CAST (bytea AS text)")


def test_changes_in_another_database_are_named_with_that_database(place: str, databases: Databases) -> None:
    """Catalogues there cannot be read, and one statement drops all that the role owns there."""
    other = databases.create()
    with login(place, "queue_message_etl") as app, psycopg.connect(place, autocommit=True) as owner:
        role = own_role(owner, "etl")
        _as_member(app, role, "ALTER DEFAULT PRIVILEGES FOR ROLE {0} GRANT ALL ON TABLES TO PUBLIC", database=other)
        _as_member(app, role, "SELECT lo_create(0)", database=other)
        [sentence] = crossings(place)
        there = f"The role {role} owns default privileges or objects in database {other}: run DROP OWNED BY {role} there."
        assert there == sentence
        with psycopg.connect(databases.url(other), autocommit=True) as elsewhere:
            elsewhere.execute(_remedy(sentence).removesuffix(" there").encode())
        assert ([], 0) == (crossings(place), _left(place, role))


def test_what_a_copy_of_the_database_grants_to_the_role_is_not_revoked_there(databases: Databases, database_url: str) -> None:
    """A copy shares its roles, so the sentence asks for the check there."""
    copy = databases.create(template=str(conninfo_to_dict(database_url)["dbname"]))
    with login(database_url, "queue_message_producer") as app, psycopg.connect(database_url, autocommit=True) as owner:
        role = own_role(owner, "producer")
        _as_member(app, role, "SELECT lo_create(0)", database=copy)
        [sentence] = [one for one in crossings(database_url) if one.startswith("The role ")]
        assert sentence.endswith(f"in database {copy}: run relay check --borders there.")
        found = [one for one in crossings(databases.url(copy)) if one.startswith("The role ")]
        assert ["owns 1 large object"] == [one.partition(": ")[0].partition(f"{role} ")[2] for one in found]
        with psycopg.connect(databases.url(copy), autocommit=True) as there:
            there.execute(_remedy(found[0]).encode())
        assert 0 == _left(database_url, role)
    databases.drop(copy)


def test_a_database_that_belongs_to_the_role_is_named(place: str, databases: Databases, unique: str) -> None:
    """A login that may make databases can give one to its role, and that keeps the role from being dropped too."""
    with login(place, "queue_message_producer", attributes="CREATEDB") as app, psycopg.connect(place, autocommit=True) as owner:
        role = own_role(owner, "producer")
        with psycopg.connect(app, autocommit=True) as member:
            member.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(unique), sql.Identifier(role)))
        [sentence] = crossings(place)
        assert f"The role {role} owns 1 object: run ALTER DATABASE {unique} OWNER TO CURRENT_USER." == sentence
        owner.execute(_remedy(sentence).encode())
        assert [] == crossings(place)
    run(databases, "DROP DATABASE {}", unique)
