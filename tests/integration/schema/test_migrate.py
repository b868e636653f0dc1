"""The schema comes up to date once, completely or not at all, in a schema of any name."""

from __future__ import annotations

import threading
from queue import Queue

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay.errors import MigrationError, StoreError
from relay.postgres.schema.migrate import check, migrate
from relay.postgres.schema.sql_files import migrations, read
from tests import ROOT
from tests.support.database.older_schema import migrate_until
from tests.support.pages.docs import text_of
from tests.support.servers.logins import login
from tests.support.servers.shared import Databases

ALL = [migration.name for migration in migrations()]
ODD_NAMES = [
    "Odd-Schema name",
    'quo"te',
    "apo'strophe",
    "dollar$body$do$do$",
    "100% %s %1$I",
    "back\\slash",
    "ümläut",
    "select",
    "@schema@",
]


@pytest.mark.ids("A22", "A23")
def test_an_empty_database_gets_everything_once(empty_database_url: str) -> None:
    """The first call applies every migration, the second none."""
    assert migrate(empty_database_url) == ALL
    assert [] == migrate(empty_database_url)
    assert [] == check(empty_database_url)


def test_check_names_what_is_missing_and_changes_nothing(empty_database_url: str, database: psycopg.Connection) -> None:
    """Asking leaves no trace, not even in a schema that is not there."""
    assert check(empty_database_url) == ALL
    assert check(empty_database_url, schema="elsewhere") == ALL
    assert (0,) == database.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'queue%'").fetchone()


@pytest.mark.ids("D4")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_legal_schema_name_works(empty_database_url: str, database: psycopg.Connection, name: str) -> None:
    """Every function finds its tables, whatever must be quoted in the schema's name."""
    migrate(empty_database_url, schema=name)

    database.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(name)))
    database.execute("INSERT INTO queue_message (exchange, ordering_key) VALUES ('e', 'k')")
    database.execute("UPDATE queue_message SET lock_expires_at = now() - interval '1 s', lock_token = gen_random_uuid()")
    assert (1, 0) == database.execute("SELECT released, archived FROM queue_message_sweep()").fetchone()
    database.execute("SELECT queue_message_key_skip('k'), queue_message_replay(id) FROM queue_message")
    database.execute("SELECT queue_message_retain(now() + interval '40 days')")
    database.execute("SELECT queue_message_config_set('notify', 'always'), queue_message_renotify(), queue_message_sweep_minute()")
    database.execute("TABLE queue_message_status")
    states = database.execute("SELECT state FROM queue_message_state").fetchall()
    assert [] == check(empty_database_url, schema=name)
    assert ["discarded", "ready"] == sorted(state for (state,) in states)


@pytest.mark.ids("D4")
def test_two_schemas_of_one_database_do_not_meet(empty_database_url: str, database: psycopg.Connection) -> None:
    """Each outbox has its own messages and its own idle gate."""
    for schema in ("one", "two"):
        migrate(empty_database_url, schema=schema)
    database.execute("INSERT INTO one.queue_message (exchange) VALUES ('e')")

    counts = database.execute("SELECT (SELECT count(*) FROM one.queue_message), (SELECT count(*) FROM two.queue_message)").fetchone()
    keys = database.execute("SELECT one.queue_message_gate_key() = two.queue_message_gate_key()").fetchone()
    assert ((1, 0), (False,)) == (counts, keys)


@pytest.mark.parametrize("name", ["", "pg_mine", "x" * 64, "ü" * 32])
def test_a_name_that_cannot_be_a_schema_is_refused(name: str) -> None:
    """PostgreSQL would cut a long name in silence."""
    with pytest.raises(MigrationError, match="cannot be the name of a schema"):
        migrate("", schema=name)


def test_two_at_once_apply_everything_once(empty_database_url: str) -> None:
    """The second waits for the first and finds nothing to do."""
    applied: list[list[str]] = []
    both = [threading.Thread(target=lambda: applied.append(migrate(empty_database_url))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert sorted(applied) == [[], ALL]


def test_who_has_the_lock_is_named_and_waited_for(database_url: str) -> None:
    """A person who deploys must not wait silently for another migration."""
    heard: Queue[str] = Queue()
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE queue_message_migration IN SHARE ROW EXCLUSIVE MODE")
        waiting = threading.Thread(target=migrate, args=(database_url,), kwargs={"say": heard.put})
        waiting.start()
        said = heard.get(timeout=20)
        other.rollback()
        waiting.join()
        holder = other.info.backend_pid

    assert said.startswith(f"Waiting for process {holder} of postgres")


def test_a_newer_schema_is_left_alone(database_url: str) -> None:
    """A program that is older than the schema says so instead of guessing."""
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO queue_message_migration VALUES (9999, '9999_later', '')")

    for call in (migrate, check):
        with pytest.raises(MigrationError, match=r"at version 9999 .* install"):
            call(database_url)


def test_an_edited_migration_is_told_and_not_run_again(database_url: str) -> None:
    """Who changed an applied file hears of it."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE queue_message_migration SET checksum = 'other' WHERE version = 1")
    said: list[str] = []

    assert [] == migrate(database_url, say=said.append)

    assert ["Migration 0001_queue was applied from another text than this program carries; it is not run again."] == said


def test_a_failure_after_the_commit_says_that_the_schema_is_there(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call does the rest."""
    with monkeypatch.context() as patched:
        patched.setattr("relay.postgres.schema.migrate.read", lambda name: "SELECT 1 / 0" if name == "former.sql" else read(name))
        with pytest.raises(MigrationError, match=r"the schema is up to date, but what follows is not done: .*division by zero"):
            migrate(empty_database_url)

    assert [] == check(empty_database_url)
    assert [] == migrate(empty_database_url)


def test_a_failure_changes_nothing(empty_database_url: str, database: psycopg.Connection) -> None:
    """A migration that fails takes those before it back."""
    database.execute("CREATE TABLE queue_message_archive (mine int)")

    with pytest.raises(
        MigrationError, match=r'Migration 0004_archive failed and nothing was changed: relation "queue_message_archive" already'
    ):
        migrate(empty_database_url)

    assert [("queue_message_archive",)] == database.execute("SELECT relname FROM pg_class WHERE relname ~ '^queue_message'").fetchall()


def test_what_keeps_a_migration_from_dropping_is_named(
    empty_database_url: str, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any login with a schema of its own can make such a function; it needs no right to call what it names."""
    migrate_until(empty_database_url, 47, monkeypatch)
    calls = "SELECT public.queue_message_keyed_due(now(), 1)"
    database.execute(f"CREATE FUNCTION mine() RETURNS void LANGUAGE sql BEGIN ATOMIC {calls}; END")

    with pytest.raises(
        MigrationError, match=r"0048_.* failed and nothing was changed: .*again: function public\.mine\(\) depends on function "
    ):
        migrate(empty_database_url)

    database.execute("DROP FUNCTION mine()")
    assert migrate(empty_database_url)


def test_without_permission_the_sentence_names_the_way_out(empty_database_url: str) -> None:
    """The error tells a login that may not create tables which one may."""
    with login(empty_database_url) as url:
        with pytest.raises(MigrationError, match=r"permission denied for schema public.*as the owner.*--sql"):
            migrate(url)
        with pytest.raises(MigrationError, match="permission denied for database"):
            migrate(url, schema="mine")


def test_a_wrong_password_is_one_sentence_without_it(empty_database_url: str) -> None:
    """The password itself is not repeated."""
    with login(empty_database_url) as url:
        wrong = make_conninfo(url, password="hunter2")
        if _lets_in(wrong):
            pytest.skip("this server asks nobody for a password")
        with pytest.raises(StoreError, match="password authentication failed for user") as caught:
            migrate(wrong)
    assert "hunter2" not in str(caught.value)


def _lets_in(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_an_unreachable_server_is_one_sentence(empty_database_url: str) -> None:
    """What cannot be reached is named, with what to check."""
    with pytest.raises(StoreError, match=r"^PostgreSQL does not answer: check that it runs and RELAY_DATABASE_URL .*refused"):
        migrate("host=127.0.0.1 port=1 dbname=x")
    with pytest.raises(StoreError, match='database "no_such" does not exist'):
        check(make_conninfo(empty_database_url, dbname="no_such"))


def test_a_database_in_latin1_gets_everything(databases: Databases) -> None:
    """No text of ours has a letter that another encoding lacks."""
    name = databases.create()
    databases.drop(name)
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode())
        assert len(migrations()) == len(migrate(databases.url(name)))
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_primary_that_is_kept_from_writing_is_one_sentence(empty_database_url: str) -> None:
    """With what keeps it from that."""
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        name = sql.Identifier(owner.info.dbname)
        owner.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))

    with pytest.raises(MigrationError, match=r"^PostgreSQL is a primary that default_transaction_read_only .*ALTER ROLE.*\)\.$"):
        migrate(empty_database_url)
    with pytest.raises(StoreError, match=r"^PostgreSQL is read-only: .*, if it is the primary, turn default_transaction_read_only off"):
        migrate(make_conninfo(empty_database_url, target_session_attrs="read-write"))


def test_settings_are_seeded_once(empty_database_url: str, database: psycopg.Connection) -> None:
    """The environment fills what is not there; what somebody changed stays."""
    migrate(empty_database_url, seed={"max_attempts": "3", "notify": "off"})
    database.execute("UPDATE queue_message_setting SET value = '4' WHERE name = 'max_attempts'")
    migrate(empty_database_url, seed={"max_attempts": "5", "backoff_max": "60"})

    found: dict[str, str] = dict(database.execute("SELECT name, value FROM queue_message_setting").fetchall())
    assert ("4", "off", "600") == (found["max_attempts"], found["notify"], found["backoff_max"])


def test_a_seed_that_makes_no_sense_is_refused(empty_database_url: str, database: psycopg.Connection) -> None:
    """The sentence names the setting and what it may be, and nothing is left behind."""
    with pytest.raises(MigrationError, match='Setting "notify" is "sometimes"; it must be one of idle, always, off'):
        migrate(empty_database_url, seed={"notify": "sometimes"})
    assert (0,) == database.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'queue%'").fetchone()


def test_the_users_settings_of_the_server_do_not_matter(empty_database_url: str, database: psycopg.Connection) -> None:
    """Date style, time zone, isolation and search path of the login are its own affair."""
    for setting in (
        "datestyle = 'German'",
        "timezone = 'Pacific/Apia'",
        "default_transaction_isolation = 'serializable'",
        "search_path = ''",
    ):
        database.execute(f"ALTER DATABASE {sql.Identifier(database.info.dbname).as_string()} SET {setting}".encode())

    migrate(empty_database_url)

    name = "'queue_message_archive_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
    bound = f"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = {name}"
    today = "SELECT format('FOR VALUES FROM (%L) TO (%L)', d, d + interval '1 day') FROM date_trunc('day', now(), 'UTC') AS d"
    database.execute("SET timezone = 'UTC'")
    assert database.execute(today.encode()).fetchone() == database.execute(bound.encode()).fetchone()


def test_the_statement_for_removal_leaves_nothing_of_ours(database_url: str) -> None:
    """What docs/operations/upgrades.md drops is all that is named after us; the application's table stays."""
    page = text_of(ROOT / "docs/operations/upgrades.md").partition("## Remove the relay")[2]
    statement = page.partition("```sql\n")[2].partition("```")[0]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int)")
        connection.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
        connection.execute(statement.encode())
        for catalogue, name in (("pg_class", "relname"), ("pg_proc", "proname"), ("pg_type", "typname")):
            left = connection.execute(f"SELECT {name} FROM {catalogue} WHERE starts_with({name}, 'queue_message')".encode()).fetchall()
            assert [] == left
        assert [(0,)] == connection.execute("SELECT count(*) FROM orders").fetchall()
