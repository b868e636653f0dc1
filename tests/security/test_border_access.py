"""Logins that cross a border in another way than by two memberships: each is named, and who administers both sides is listed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay import devservers
from relay.postgres.schema.borders import crossings
from relay.postgres.schema.migrate import migrate
from tests.support.relays.cli import Cli
from tests.support.servers.logins import login, own_role
from tests.support.servers.named_outboxes import name_of, named_outboxes, prefix_of
from tests.support.servers.shared import Databases, Say

Pair = tuple[str, str]
Ways = dict[str, tuple[str | None, str | None]]
OPTIONS_SINCE = 160000
"""The first version whose memberships say whether their member inherits and may set the role; there CREATEROLE grants nothing by itself."""


@pytest.fixture(scope="module")
def pair(databases: Databases) -> Iterator[Pair]:
    """URLs of two databases, each with the outboxes `public` and `two`; tests leave them as they were."""
    names = [f"t{secrets.token_hex(4)}" for _ in range(2)]
    with named_outboxes(databases) as make:
        here, there = (make(name, "two") and make(name) for name in names)
        yield here, there


def _do(url: str, statement: str, *names: str) -> None:
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _version(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.info.server_version


def _named(url: str, schema: str = "public") -> list[str]:
    """Logins of tests that the check names."""
    return sorted(word for one in crossings(url, schema=schema) for word in one.split()[2:3] if word.startswith("relay_test_"))


def _administrators(url: str, schema: str = "public") -> dict[str, str]:
    with psycopg.connect(url) as connection:
        found = sql.SQL("SELECT login, administers FROM {}.queue_message_logins() WHERE administers IS NOT NULL").format(
            sql.Identifier(schema)
        )
        return {who: how for who, how in connection.execute(found).fetchall() if who.startswith("relay_test_")}


@contextmanager
def _group(url: str, *members: str, attributes: str = "") -> Iterator[str]:
    """A role without a password, with these members."""
    name = f"group_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL(f"CREATE ROLE {{}} {attributes}").format(sql.Identifier(name)))
        for member in members:
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(name), sql.Identifier(member)))
        try:
            yield name
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {0}").format(sql.Identifier(name)))
            owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


GRANTS = (
    "GRANT INSERT ON {0}.queue_message TO {1}",
    "GRANT SELECT (content) ON {0}.queue_message TO {1}",
    "GRANT TRUNCATE ON {0}.queue_message_archive TO {1}",
    "GRANT EXECUTE ON FUNCTION {0}.queue_message_pause TO {1}",
    "SELECT {0}.queue_message_grant('queue_message_etl', '{1}')",
)
"""Ways to give a login something of an outbox itself."""


@pytest.mark.parametrize("grant", GRANTS)
def test_a_member_that_was_granted_something_of_another_schema_is_named_in_both(pair: Pair, grant: str) -> None:
    """Rights of tables, columns and functions, whatever they are; there by a group, here by a role."""
    url, _ = pair
    with login(url, "queue_message_producer", schema="public") as app, _group(url, name_of(app)) as group:
        _do(url, grant, "two", group)
        assert [[name_of(app)], [name_of(app)]] == [_named(url), _named(url, "two")]
        [sentence] = crossings(url, schema="two")
        assert " as a member of " + group in sentence


@pytest.mark.parametrize("grant", [GRANTS[0], GRANTS[3], GRANTS[4]])
def test_a_member_that_was_granted_something_in_another_database_is_named_in_both(pair: Pair, grant: str) -> None:
    """An outbox of another database is known by what its roles have rights on."""
    here, there = pair
    with login(here, "queue_message_relay", schema="public") as app:
        _do(there, grant, "public", name_of(app))
        assert [[name_of(app)], [name_of(app)]] == [_named(here), _named(there)]
        _do(there, "DROP OWNED BY {}", name_of(app))
    with login(here) as app:
        for url in pair:
            _do(url, grant, "public", name_of(app))
        assert [[name_of(app)], [name_of(app)]] == [_named(here), _named(there)]
        for url in pair:
            _do(url, "DROP OWNED BY {}", name_of(app))


@pytest.mark.parametrize("schema", ["public", "two"])
def test_rights_on_tables_of_the_application_cross_no_border(pair: Pair, schema: str) -> None:
    """Not in the database or the schema of another outbox, nor of this one; neither does the use of a schema."""
    here, there = pair
    with login(here, "queue_message_producer", schema=schema) as app:
        for url in pair:
            _do(url, "CREATE TABLE invoice ()")
            _do(url, "GRANT SELECT ON invoice TO {0}; GRANT USAGE ON SCHEMA public, two TO {0}", name_of(app))
        assert [[], [], []] == [crossings(here), crossings(here, schema="two"), crossings(there)]
        for url in pair:
            _do(url, "DROP TABLE invoice; REVOKE ALL ON SCHEMA public, two FROM {}", name_of(app))


@pytest.mark.parametrize(
    ("grant", "revoke"),
    [
        ("GRANT SELECT ON {}.queue_message_archive TO PUBLIC", "REVOKE ALL ON TABLE two.queue_message_archive FROM PUBLIC"),
        ("GRANT SELECT (content) ON {}.queue_message TO PUBLIC", "REVOKE ALL ON TABLE two.queue_message FROM PUBLIC"),
        ("GRANT EXECUTE ON FUNCTION {}.queue_message_sweep TO PUBLIC", "REVOKE ALL ON FUNCTION two.queue_message_sweep("),
        ("GRANT CREATE, USAGE ON SCHEMA {} TO PUBLIC", "REVOKE CREATE ON SCHEMA two FROM PUBLIC"),
    ],
)
def test_what_everybody_may_is_named_with_the_statement_that_takes_it_back(pair: Pair, grant: str, revoke: str) -> None:
    """Of tables, columns, functions, and to make objects in the schema; in that outbox alone."""
    url, _ = pair
    _do(url, grant, "two")
    [sentence] = crossings(url, schema="two")
    assert revoke in sentence
    assert [] == crossings(url)
    _do(url, sentence[sentence.index("REVOKE") :].removesuffix(" as the owner."))
    assert [] == crossings(url, schema="two")


WITHIN_REACH: tuple[tuple[str, str, int], ...] = (
    ("superuser", "SUPERUSER", 0),
    ("REPLICATION", "REPLICATION", 0),
    ("CREATEROLE", "CREATEROLE", OPTIONS_SINCE),
)


@pytest.mark.parametrize(("how", "attribute", "until"), WITHIN_REACH)
@pytest.mark.parametrize("indirect", [False, True])
def test_a_member_of_one_outbox_with_an_attribute_that_opens_all_is_named(
    pair: Pair, how: str, attribute: str, until: int, *, indirect: bool
) -> None:
    """The attribute is the login's own, or of a role that it may set. One that has it and no role is listed.

    From PostgreSQL 16 on CREATEROLE alone grants no role of others.
    """
    here, there = pair
    opens = not until or _version(here) < until
    with ExitStack() as stack:
        app, admin = stack.enter_context(login(here, "queue_message_operator", schema="public")), stack.enter_context(login(here))
        names = [name_of(app), name_of(admin)]
        if indirect:
            how += " as a member of " + stack.enter_context(_group(here, *names, attributes=attribute))
        else:
            for name in names:
                _do(here, f"ALTER ROLE {{}} {attribute}", name)
        assert [[name_of(app)] if opens else []] * 2 == [_named(here), _named(there)]
        assert (dict.fromkeys(names, how) if opens else {}) == _administrators(here)
        if opens:
            assert f"and another one ({how}): " in crossings(here)[0]


@pytest.mark.parametrize("role", ["pg_read_all_data", "pg_write_all_data", "pg_execute_server_program", "pg_read_server_files"])
def test_a_member_of_one_outbox_and_of_a_role_of_the_server_that_opens_all_is_named(pair: Pair, role: str) -> None:
    """Roles that PostgreSQL has, and that read, write or run whatever there is."""
    here, there = pair
    with login(here, "queue_message_producer", role, schema="public") as app:
        assert [[name_of(app)], [name_of(app)]] == [_named(here), _named(there)]
        assert {name_of(app): f"member of {role}"} == _administrators(there)


def test_roles_of_the_server_that_open_nothing_are_not_named(pair: Pair) -> None:
    """Such as the one by which an operator sees how old transactions are."""
    here, _ = pair
    with login(here, "queue_message_operator", "pg_read_all_stats", schema="public", attributes="CREATEDB BYPASSRLS") as ann:
        assert ([], {}) == (_named(here), _administrators(here)), name_of(ann)


OWNERSHIPS: tuple[tuple[str, str], ...] = (
    ("ALTER SCHEMA two OWNER TO {}", "owner of the outbox"),
    ("ALTER TABLE two.queue_message OWNER TO {}", "owner of the outbox"),
    ("ALTER DATABASE {1} OWNER TO {0}", "owner of the database"),
)


@pytest.mark.parametrize(("statement", "how"), OWNERSHIPS)
def test_an_owner_of_one_outbox_that_is_a_member_of_another_is_named(pair: Pair, statement: str, how: str) -> None:
    """The owner of the schema, of a table or of the database, in the other one's check too. An owner of both is listed alone."""
    here, there = pair
    database = str(conninfo_to_dict(there)["dbname"])
    with login(here, "queue_message_producer", schema="public") as app, login(here) as owner:
        for who, named in ((app, [name_of(app)]), (owner, [])):
            _do(there, statement, name_of(who), database)
            _do(here, "ALTER SCHEMA two OWNER TO {}", name_of(owner))
            assert {name_of(who): how} == _administrators(there, "two")
            assert [named, named] == [_named(here), _named(there, "two")]
        for url in pair:
            _do(url, "ALTER DATABASE {} OWNER TO postgres", str(conninfo_to_dict(url)["dbname"]))
            _do(url, "REASSIGN OWNED BY {} TO postgres", name_of(owner))


def test_who_may_grant_a_role_administers_its_outbox(pair: Pair) -> None:
    """From PostgreSQL 16 on ADMIN OPTION alone makes no member, and lets its holder grant itself the role."""
    here, there = pair
    only = ", INHERIT FALSE, SET FALSE" if _version(here) >= OPTIONS_SINCE else ""
    with login(here, "queue_message_producer", schema="public") as app:
        _do(there, f"GRANT {{}} TO {{}} WITH ADMIN {'TRUE' + only if only else 'OPTION'}", f"{prefix_of(there)}_relay", name_of(app))
        assert [[name_of(app)], [name_of(app)]] == [_named(here), _named(there)]
        assert ({name_of(app): f"member of {prefix_of(there)}_relay by ADMIN OPTION"} if only else {}) == _administrators(there)


ROUTES: tuple[tuple[str, str, bool], ...] = (
    ("INHERIT FALSE, SET FALSE", "INHERIT TRUE, SET TRUE", False),
    ("INHERIT TRUE, SET FALSE", "INHERIT TRUE, SET FALSE", True),
    ("INHERIT FALSE, SET TRUE", "INHERIT TRUE, SET FALSE", True),
    ("INHERIT FALSE, SET TRUE", "INHERIT FALSE, SET TRUE", True),
    ("INHERIT TRUE, SET FALSE", "INHERIT FALSE, SET TRUE", False),
    ("INHERIT TRUE, SET FALSE", "ADMIN TRUE, INHERIT FALSE, SET FALSE", True),
    ("ADMIN TRUE, INHERIT FALSE, SET FALSE", "INHERIT TRUE, SET FALSE", True),
    ("INHERIT FALSE, SET FALSE", "ADMIN TRUE, INHERIT TRUE, SET TRUE", False),
)
"""Options of a login's membership in a group and of the group's in a role of another outbox; whether the login can get in."""


@pytest.mark.parametrize(("of_login", "of_group", "reaches"), ROUTES)
def test_a_chain_of_memberships_counts_where_a_login_can_use_it(pair: Pair, of_login: str, of_group: str, *, reaches: bool) -> None:
    """The check says what the login itself finds out, by setting roles and by granting itself what it may grant."""
    here, there = pair
    if _version(here) < OPTIONS_SINCE:
        pytest.skip("memberships have no such options before PostgreSQL 16")
    role = f"{prefix_of(there)}_relay"
    with login(here, "queue_message_producer", schema="public") as app, _group(here) as group:
        _do(here, f"GRANT {{}} TO {{}} WITH {of_group}", role, group)
        _do(here, f"GRANT {{}} TO {{}} WITH {of_login}", group, name_of(app))
        assert [[name_of(app)] if reaches else []] * 2 == [_named(here), _named(there)]
        assert reaches == _gets_in(make_conninfo(app, dbname=conninfo_to_dict(there)["dbname"]), group, role)


def _gets_in(url: str, group: str, role: str) -> bool:
    """Whether a login reads the other outbox's queue, by whatever it may make of its memberships."""
    me = name_of(url)
    grants = [(f"GRANT {{}} TO {{}} GRANTED BY {by}", one, me) for one in (group, role) for by in (me, group)]
    with psycopg.connect(url, autocommit=True) as connection:
        for statement, *names in grants:
            with suppress(errors.InsufficientPrivilege):
                connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
        for one in (me, group, role):
            with suppress(errors.InsufficientPrivilege), connection.transaction(force_rollback=True):
                connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(one)))
                connection.execute("SELECT content FROM queue_message")
                return True
    return False


def test_a_server_with_one_outbox_has_no_crossing(say: Say) -> None:
    """Whatever its members may do."""
    with devservers.postgres(say=say, private=True) as server:
        migrate(server.url)
        with login(server.url, "queue_message_producer", "pg_read_all_data", attributes="CREATEROLE SUPERUSER"):
            assert [] == crossings(server.url)


def test_names_are_quoted_for_where_they_are_used(pair: Pair, tmp_path: Path) -> None:
    """A login with a space, quotes and a shell's signs: as an identifier in the sentence, as an argument in the command."""
    here, there = pair
    name = 'My "App" it\'s $(id)'
    with psycopg.connect(here, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        try:
            for url in pair:
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("SELECT queue_message_admit('etl', %s)", (name,))
            [sentence] = crossings(there)
            assert sentence.startswith('The login "My ""App"" it\'s $(id)" reaches')
            command = sentence[sentence.index("relay revoke ") :].removesuffix(").")
            assert "relay revoke etl 'My \"App\" it'\"'\"'s $(id)'" == command
            cli = Cli(there, tmp_path)
            cli("revoke", "etl", name)
            assert "is not a member of this outbox's role `etl`" in cli.refused("revoke", "etl", name, code=3)
            assert [] == crossings(there)
        finally:
            owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_the_command_lists_who_administers_and_fails_for_none_of_them(pair: Pair, tmp_path: Path) -> None:
    """For people and for scripts, also where an operator asks."""
    here = Cli(pair[0], tmp_path)
    with login(pair[0], "queue_message_operator", schema="public") as ann, login(pair[0], attributes="SUPERUSER") as root:
        assert f"\nadministrator: '{name_of(root)}' (superuser)\n" in here("check", "--borders", RELAY_DATABASE_URL=ann)
        found = here.json("check", "--borders")
        assert {"login": name_of(root), "how": "superuser"} in found["administrators"]
        assert [] == found["crossings"]


FORGED = {
    "CREATE TEMP TABLE queue_message_migration (); CREATE TEMP TABLE queue_message (); GRANT SELECT ON queue_message TO {0}, {1}": False,
    "SELECT lo_create(86); GRANT SELECT ON LARGE OBJECT 86 TO {0}, {1}": True,
}
"""What any login may do with objects of its own, in this database or in another one: grant rights on them to a member and to a role."""


@pytest.mark.parametrize(("forged", "elsewhere"), FORGED.items())
def test_what_every_login_may_make_crosses_no_border(pair: Pair, forged: str, *, elsewhere: bool) -> None:
    """Neither of a member nor of the outbox's roles, for which the check would have an operator take away a role."""
    here, there = pair
    with psycopg.connect(here) as owner:
        role = own_role(owner, "queue_message_relay", "public")
    for url in (here, there) if elsewhere else (here,):
        with login(here, "queue_message_relay", schema="public") as app, login(url) as stranger:
            with psycopg.connect(stranger, autocommit=True) as connection:
                connection.execute(sql.SQL(forged).format(*map(sql.Identifier, (name_of(app), role))))
                assert [[], []] == [crossings(here), crossings(there)]
            _do(url, "DROP OWNED BY {}", name_of(stranger))
