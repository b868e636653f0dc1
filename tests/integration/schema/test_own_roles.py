"""An installation whose roles served the whole server gets roles of its own, and no login is refused at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.errors import MigrationError, StoreError
from relay.postgres.schema.borders import check_roles, crossings
from relay.postgres.schema.migrate import check, migrate
from relay.postgres.schema.sql_files import migrations, read
from tests.support.database.older_schema import migrate_until
from tests.support.servers.logins import HELD, KINDS, login
from tests.support.servers.shared import Databases

SHARED_UNTIL = 35
"""The last migration with which roles belonged to the whole server."""
WORK = {
    "queue_message_producer": "INSERT INTO queue_message (exchange) VALUES ('e')",
    "queue_message_relay": "SELECT queue_message_hint_mode(), (SELECT count(*) FROM queue_message WHERE exchange = 'none')",
    "queue_message_operator": "SELECT queue_message_pause('x'), (SELECT count(*) FROM queue_message_dead_list)",
    "queue_message_etl": "SELECT content FROM queue_message_archive WHERE archived_xid >= '0'",
    "queue_message_replayer": "SELECT count(*) FROM queue_message_replay_ledger",
    "queue_message_consumer": "INSERT INTO queue_message_received (consumer, message_id) VALUES ('c', gen_random_uuid()::text)",
    "queue_message_receiver": "INSERT INTO queue_message (exchange) VALUES ('e') RETURNING id",
}
WITH_HEADERS = """INSERT INTO queue_message (exchange, options) VALUES ('e', '{"headers": {"list": [1]}}')"""
"""Options of an uncommon kind go through every function that checks them."""
TAKEN_TOO_EARLY = """
    SELECT DISTINCT g.object FROM queue_message_grants() g JOIN pg_proc p ON p.oid = g.oid
    WHERE g.kind = 'FUNCTION' AND p.xmin::text::bigint <= (
        SELECT max(m.xmin::text::bigint) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
        WHERE r.rolname LIKE queue_message_role('') || '%%')
"""
"""Functions whose rights changed no more after members were admitted."""
GRANTS_OF = """
    SELECT count(*) FROM (
        SELECT aclexplode(relacl) AS x FROM pg_class
        UNION ALL SELECT aclexplode(attacl) FROM pg_attribute UNION ALL SELECT aclexplode(proacl) FROM pg_proc
    ) AS every WHERE (x).grantee = quote_ident(%s)::regrole
"""
LEFT = """
    SELECT 'relation', c.relname::text, c.relkind::text, ARRAY(
        SELECT concat_ws(' ', a.attname, a.atttypid::regtype, a.attnotnull, ARRAY(SELECT x::text FROM unnest(a.attacl) AS x ORDER BY 1))
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attname)::text,
        ARRAY(SELECT x::text FROM unnest(c.relacl) AS x ORDER BY 1)::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT 'function', p.oid::regprocedure::text, p.proconfig::text, p.prosrc,
        ARRAY(SELECT x::text FROM unnest(p.proacl) AS x ORDER BY 1)::text FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'trigger', t.tgrelid::regclass::text, t.tgname::text, t.tgenabled::text, pg_get_triggerdef(t.oid)
    FROM pg_trigger t WHERE NOT t.tgisinternal
    UNION ALL SELECT 'role', r.rolname, r.rolcanlogin::text, shobj_description(r.oid, 'pg_authid'),
        ARRAY(SELECT m.member::regrole::text FROM pg_auth_members m WHERE m.roleid = r.oid ORDER BY 1)::text
    FROM pg_roles r WHERE starts_with(r.rolname, queue_message_role(''))
    UNION ALL SELECT 'migration', name, version::text, checksum, '' FROM queue_message_migration
    UNION ALL SELECT 'setting', name, value, '', '' FROM queue_message_setting
"""
"""The schema, roles and grants that a migration leaves."""
OURS_SINCE = "SELECT rolname FROM pg_roles WHERE pg_has_role(%s, oid, 'MEMBER') AND rolname LIKE 'queue%%' ORDER BY 1"


def name_of(url: str) -> str:
    """The login of a connection string."""
    return str(conninfo_to_dict(url)["user"])


class Worker(threading.Thread):
    """Runs one statement in a loop, on one connection, until it is refused or stopped."""

    def __init__(self, url: str, statement: str) -> None:
        super().__init__()
        self._url, self._statement = url, statement
        self._turned, self._stopped = threading.Event(), threading.Event()
        self.refused: str | None = None

    def run(self) -> None:
        """Work."""
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._stopped.is_set():
                    connection.execute(self._statement.encode())
                    self._turned.set()
        except psycopg.Error as error:
            self.refused = f"{self._statement}: {error}"
        self._turned.set()

    def turn(self) -> None:
        """Wait until a statement that began after this call has ended."""
        for _ in range(2):
            self._turned.clear()
            assert self.refused is None
            assert self._turned.wait(30)

    def stop(self) -> None:
        """End it, and expect that no statement was refused."""
        self._stopped.set()
        self.join()
        assert self.refused is None


@pytest.fixture
def old_url(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a database whose outbox has the roles of the whole server."""
    name = databases.create()
    migrate_until(databases.url(name), SHARED_UNTIL, monkeypatch)
    yield databases.url(name)
    databases.drop(name)
    with psycopg.connect(databases.url("postgres"), autocommit=True) as connection:
        for kind in KINDS:
            connection.execute(f"DROP ROLE IF EXISTS {kind}".encode())


@contextmanager
def logins_of_before(url: str, *kinds: str, option: str = "") -> Iterator[dict[str, str]]:
    """Connection strings by kind of logins that are members of the shared roles."""
    with ExitStack() as stack, psycopg.connect(url, autocommit=True) as owner:
        made = {kind: stack.enter_context(login(url)) for kind in kinds}
        for kind, member in made.items():
            owner.execute(f"GRANT {kind} TO {name_of(member)} {option}".encode())
        yield made


def test_an_upgrade_refuses_no_login_at_any_moment(old_url: str) -> None:
    """A login of each role works before, during and after it, in old and new sessions. Then it works without the old role."""
    with logins_of_before(old_url, *KINDS) as members:
        workers = [Worker(url, WORK[kind]) for kind, url in members.items()]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.turn()
        migrate(old_url)
        for worker in workers:
            worker.turn()
            worker.stop()
        for kind, url in members.items():
            with psycopg.connect(url) as connection:
                connection.execute(WORK[kind].encode())
    assert check_roles(old_url) is None
    with psycopg.connect(old_url) as owner:
        assert [] == owner.execute("SELECT * FROM queue_message_former_grants()").fetchall()
        assert (False,) == owner.execute("SELECT has_table_privilege('queue_message_etl', 'queue_message_archive', 'SELECT')").fetchone()


def test_rights_are_taken_only_after_the_commit_that_gives_others(old_url: str) -> None:
    """A session reads a commit in pieces: the last change of a former role's rights on a function is a later transaction's."""
    with logins_of_before(old_url, *KINDS):
        migrate(old_url)
        with psycopg.connect(old_url) as owner:
            assert [] == owner.execute(TAKEN_TOO_EARLY).fetchall()


def test_an_upgrade_keeps_who_may_grant_and_who_is_a_member_by_another_role(old_url: str) -> None:
    """The admin option stays; a shared role that was a member of another becomes the outbox's own."""
    with psycopg.connect(old_url, autocommit=True) as owner:
        owner.execute("GRANT queue_message_producer TO queue_message_operator")
        with logins_of_before(old_url, "queue_message_operator", option="WITH ADMIN OPTION") as members, login(old_url) as other:
            url = members["queue_message_operator"]
            migrate(old_url)
            with psycopg.connect(url, autocommit=True) as operator:
                operator.execute(WORK["queue_message_producer"].encode())
                operator.execute(WORK["queue_message_operator"].encode())
                [(role,)] = operator.execute("SELECT queue_message_role('operator')").fetchall()
                operator.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(name_of(other))))
            [(own,)] = owner.execute("SELECT queue_message_role('producer')").fetchall()
            assert ["queue_message_operator", "queue_message_producer", role, own] == sorted(
                (name for (name,) in owner.execute(OURS_SINCE, (name_of(url),)).fetchall()), key=lambda name: (len(name), name)
            )


def test_what_the_old_roles_have_elsewhere_stays(old_url: str) -> None:
    """A table of the application's, in the same schema, is none of the outbox's."""
    with psycopg.connect(old_url, autocommit=True) as owner, logins_of_before(old_url, "queue_message_etl") as members:
        owner.execute("CREATE TABLE invoice ()")
        owner.execute("GRANT SELECT ON invoice TO queue_message_etl")
        migrate(old_url)
        with psycopg.connect(members["queue_message_etl"]) as etl:
            etl.execute("TABLE invoice")
        owner.execute("DROP TABLE invoice")


def test_the_old_names_stay_where_they_are_asked_for(old_url: str) -> None:
    """With the prefix that they had, the roles are the outbox's own from then on, and their members keep what they have."""
    with logins_of_before(old_url, "queue_message_producer") as members:
        migrate(old_url, role_prefix="queue_message")
        with psycopg.connect(members["queue_message_producer"]) as producer:
            producer.execute(WORK["queue_message_producer"].encode())
            assert ("queue_message_producer",) == producer.execute("SELECT queue_message_role('producer')").fetchone()
    assert ([], None) == (crossings(old_url), check_roles(old_url))


def test_the_old_names_are_refused_to_one_of_two_outboxes(old_url: str, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is changed; once the other one has roles of its own, they are free."""
    other = databases.create()
    migrate_until(databases.url(other), SHARED_UNTIL, monkeypatch)
    with pytest.raises(MigrationError, match=rf"^Roles that begin with queue_message have rights in database {other} .*RELAY_ROLE_PREFIX"):
        migrate(old_url, role_prefix="queue_message")
    migrate(databases.url(other))
    assert migrations()[SHARED_UNTIL].name in migrate(old_url, role_prefix="queue_message")
    databases.drop(other)


@pytest.fixture
def owned(databases: Databases, postgres_server: object) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Makes a database that a login with these attributes owns: the URL for it, and that of the superuser."""
    with ExitStack() as stack:

        def make(attributes: str) -> tuple[str, str]:
            name = databases.create()
            owner = stack.enter_context(login(databases.url("postgres"), attributes=attributes))
            stack.callback(databases.drop, name)
            with psycopg.connect(databases.url("postgres"), autocommit=True) as superuser:
                superuser.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(name), sql.Identifier(name_of(owner))))
            with psycopg.connect(databases.url(name), autocommit=True) as superuser:
                superuser.execute(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(name_of(owner))))
            return make_conninfo(owner, dbname=name), databases.url(name)

        yield make
    with psycopg.connect(databases.url("postgres"), autocommit=True) as connection:
        for kind in KINDS:
            connection.execute(f"DROP ROLE IF EXISTS {kind}".encode())


def test_without_createrole_the_old_grants_stay_until_the_statements_have_run(
    owned: Callable[[str], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statements make the roles and their members; the next migration takes the old grants back."""
    theirs, superusers = owned("")
    with psycopg.connect(superusers, autocommit=True) as superuser:
        for kind in KINDS:
            superuser.execute(f"CREATE ROLE {kind}".encode())
        migrate_until(theirs, SHARED_UNTIL, monkeypatch)
        with logins_of_before(superusers, "queue_message_producer") as members:
            said: list[str] = []
            migrate(theirs, say=said.append)
            statements = said[0].partition("CREATEROLE run: ")[2].partition(" Then ")[0]
            assert f"`{statements}`" in str(check_roles(theirs))
            producer = name_of(members["queue_message_producer"])
            assert [f"The role queue_message_producer still has rights here, and members: {producer}."] == [
                sentence.partition(" Let ")[0] for sentence in crossings(theirs)
            ]
            with psycopg.connect(members["queue_message_producer"], autocommit=True) as connection:
                connection.execute(WORK["queue_message_producer"].encode())
                superuser.execute(statements.encode())
                connection.execute(WORK["queue_message_producer"].encode())
                assert ([], None, []) == (migrate(theirs), check_roles(theirs), crossings(theirs))
                connection.execute(WORK["queue_message_producer"].encode())
            assert [] == superuser.execute("SELECT * FROM queue_message_former_grants()").fetchall()


def test_an_owner_with_createrole_upgrades_and_admits(owned: Callable[[str], tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from PostgreSQL 16 on, where only the maker of a role, or its admin, may grant it."""
    theirs, superusers = owned("CREATEROLE")
    migrate_until(theirs, SHARED_UNTIL, monkeypatch)
    with logins_of_before(superusers, "queue_message_producer") as members, login(superusers) as ann:
        said: list[str] = []
        migrate(theirs, say=said.append)
        assert ([], None, []) == (said, check_roles(theirs), crossings(theirs))
        with psycopg.connect(members["queue_message_producer"]) as producer:
            producer.execute(WORK["queue_message_producer"].encode())
        with psycopg.connect(theirs, autocommit=True) as owner, psycopg.connect(ann, autocommit=True) as connection:
            owner.execute("SELECT queue_message_admit('operator', %s)", (name_of(ann),))
            connection.execute(WORK["queue_message_operator"].encode())
            owner.execute("SELECT queue_message_dismiss('operator', %s)", (name_of(ann),))
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(WORK["queue_message_operator"].encode())


def test_an_upgrade_gives_what_it_adds_to_all_who_had_everything_before(
    owned: Callable[[str], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had it by own grants, or by a former role whose members cannot move yet. So replaced functions call nothing refused."""
    theirs, superusers = owned("")
    with psycopg.connect(superusers, autocommit=True) as superuser, ExitStack() as stack:
        for kind in KINDS:
            superuser.execute(f"CREATE ROLE {kind}".encode())
        migrate_until(theirs, SHARED_UNTIL, monkeypatch)
        logins = stack.enter_context(logins_of_before(superusers, *KINDS))
        directly = {kind: stack.enter_context(login(superusers)) for kind in KINDS}
        with psycopg.connect(theirs, autocommit=True) as owner:
            for kind, url in directly.items():
                owner.execute("SELECT queue_message_grant(%s, quote_ident(%s))", (kind, name_of(url)))
        migrate(theirs)
        for kind, url in [*logins.items(), *directly.items()]:
            who = {"who": name_of(url), "role": kind}
            assert [(True,)] == superuser.execute(sql.SQL(HELD).format(sql.Identifier("public")), who).fetchall(), kind
            if kind in ("queue_message_producer", "queue_message_receiver"):
                with psycopg.connect(url) as producer:
                    producer.execute(WITH_HEADERS)


def test_an_upgrade_gives_nothing_to_who_had_less_or_is_a_member(old_url: str) -> None:
    """A login with some of a role's rights keeps just these, and a member of a role gets no grants of its own."""
    with (
        logins_of_before(old_url, "queue_message_producer") as members,
        login(old_url) as reader,
        psycopg.connect(old_url, autocommit=True) as owner,
    ):
        member = name_of(members["queue_message_producer"])
        owner.execute(f"GRANT SELECT ON queue_message_archive TO {name_of(reader)}, {member}".encode())
        owner.execute("SELECT queue_message_grant('queue_message_etl', %s)", (name_of(reader),))
        owner.execute(f"REVOKE SELECT ON queue_message_dead FROM {name_of(reader)}".encode())
        before = [owner.execute(GRANTS_OF, (who,)).fetchone() for who in (member, name_of(reader))]
        migrate(old_url)
        assert before == [owner.execute(GRANTS_OF, (who,)).fetchone() for who in (member, name_of(reader))]


@pytest.mark.parametrize("step", ["before.sql", "after.sql", "former.sql", "cron.sql", "renumber.sql"])
@pytest.mark.parametrize("done", [False, True], ids=["as it begins", "as it ends"])
def test_an_upgrade_that_is_cut_off_is_ended_by_the_next(
    old_url: str, databases: Databases, monkeypatch: pytest.MonkeyPatch, step: str, *, done: bool
) -> None:
    """Its session is gone before one of its transactions or in it; the next leaves what an undisturbed one does."""
    undisturbed = databases.create()
    migrate_until(databases.url(undisturbed), SHARED_UNTIL, monkeypatch)
    with logins_of_before(databases.url(undisturbed), *KINDS) as members:
        migrate(databases.url(undisturbed))
        expected = left(databases.url(undisturbed), members)
    databases.drop(undisturbed)
    with logins_of_before(old_url, *KINDS) as members:
        with monkeypatch.context() as patch:
            reading = "relay.postgres.schema.migrate.read"
            patch.setattr(reading, lambda name: _cut_off(read(name), done=done) if name == step else read(name))
            with pytest.raises(StoreError, match="PostgreSQL went away"):
                migrate(old_url)
        migrate(old_url)
        assert ([], None, []) == (check(old_url), check_roles(old_url), crossings(old_url))
        assert expected == left(old_url, members)


def _cut_off(text: str, *, done: bool) -> str:
    cut = "SELECT pg_terminate_backend(pg_backend_pid())"
    return f"{text.rstrip().removesuffix(';')};\n{cut}" if done else f"{cut};\n{text}"


def left(url: str, members: dict[str, str]) -> set[tuple[str, ...]]:
    """What a migration has left, with names that are the same in every database."""
    with psycopg.connect(url) as owner:
        rows = owner.execute(LEFT).fetchall()
        [(own,)] = owner.execute("SELECT queue_message_role('')").fetchall()
    names = {own: "own_", str(conninfo_to_dict(url)["dbname"]): "database", **{name_of(member): kind for kind, member in members.items()}}
    return {tuple(reduce(lambda text, name: text.replace(name, names[name]), names, str(cell)) for cell in row) for row in rows}
