"""A migration locks everything that it changes before it changes anything, and makes no statement of others fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from relay.postgres.schema import migrate as migrating
from relay.postgres.schema.locks import lock_statement
from relay.postgres.schema.migrate import check, migrate
from relay.postgres.schema.sql_files import migrations, read
from tests.support.database.older_schema import migrate_until
from tests.support.servers.shared import Databases

OLD = 35
"""A version whose successors change most tables and views. What follows the migrations works from here on."""
LOCKED = """
    SELECT FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.relation = c.oid
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
UNLOCKED_AT_FIRST = f"""
    CREATE TEMPORARY TABLE unlocked_at_first ON COMMIT DROP AS SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'S') AND NOT EXISTS ({LOCKED});
"""
NONE_LOCKED_LATER = f"""
    DO $late$
    DECLARE
        late text := (SELECT string_agg(c.oid::regclass::text, ', ') FROM unlocked_at_first c WHERE EXISTS ({LOCKED}));
    BEGIN
        IF late IS NOT NULL THEN
            RAISE EXCEPTION 'locked later: %', late;
        END IF;
    END
    $late$;
"""
"""Relations that the transaction keeps others from writing, though it did not lock them at first."""
EVERY = """
    SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v') AND c.relname <> 'queue_message_migration' ORDER BY c.oid
"""
WAITS = """
    SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE application_name = 'outbox-relay migrate' AND NOT granted AND relation = coalesce(to_regclass(%s), relation)
"""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Runs an upgrade, and what waits behind it, concurrently with the test."""
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """URL of an empty database."""
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)


def wait_until_held_up(connection: psycopg.Connection, pid: int) -> None:
    """Return when a session waits for a lock."""
    while connection.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() != (True,):
        connection.execute("SELECT pg_sleep(0.01)")


def wait_until_waiting(migration: Future[list[str]], connection: psycopg.Connection, relation: str | None = None) -> None:
    """Return when the upgrade waits for a lock, or for that of one relation."""
    while connection.execute(WAITS, [relation]).fetchone() == (False,):
        assert not migration.done(), migration.exception()
        connection.execute("SELECT pg_sleep(0.01)")


def test_each_migration_locks_first_what_it_changes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end it has locked nothing else, except what it created. What follows the migrations locks nothing."""
    migrate_until(url, OLD, monkeypatch)
    monkeypatch.setattr(migrating, "lock_statement", lambda todo: lock_statement(todo) + UNLOCKED_AT_FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(migrating, "read", lambda name: NONE_LOCKED_LATER if name == "after.sql" else read(name))
        for migration in migrations()[OLD:]:
            migrate_until(url, migration.version, monkeypatch)
    monkeypatch.setattr(migrating, "read", lambda name: read(name) + NONE_LOCKED_LATER * (name == "after.sql"))
    migrate(url)
    assert [] == check(url)


@pytest.mark.parametrize(
    "held", ["queue_message", "queue_message_archive", "queue_message_dead_list", "queue_message_pause", "queue_message_status"]
)
def test_a_transaction_that_reads_on_is_not_refused(url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    """It has read one table or view when the migration comes, and reads all others while that waits."""
    migrate_until(url, OLD, monkeypatch)
    with psycopg.connect(url) as application, psycopg.connect(url, autocommit=True) as watch:
        application.execute(f"LOCK TABLE {held} IN ACCESS SHARE MODE".encode())
        migration = pool.submit(migrate, url)
        wait_until_waiting(migration, watch)
        for (name,) in watch.execute(EVERY.encode()).fetchall():
            application.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())
        application.commit()
        assert migrations()[-1].name == migration.result()[-1]


def test_what_two_transactions_hold_is_waited_for_one_after_the_other(
    url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the second is waited for, the table of the first is free again."""
    migrate_until(url, OLD, monkeypatch)
    with psycopg.connect(url) as one, psycopg.connect(url) as two, psycopg.connect(url, autocommit=True) as watch:
        two.execute("LOCK TABLE queue_message_dead IN ACCESS SHARE MODE")
        one.execute("LOCK TABLE queue_message IN ACCESS SHARE MODE")
        migration = pool.submit(migrate, url)
        wait_until_waiting(migration, watch, "queue_message")
        one.commit()
        wait_until_waiting(migration, watch, "queue_message_dead")
        one.execute("SET LOCAL lock_timeout = '2s'")
        one.execute("TABLE queue_message")
        wait_until_waiting(migration, watch, "queue_message_dead")
        one.commit()
        one.execute("LOCK TABLE queue_message IN ACCESS SHARE MODE NOWAIT")
        one.commit()
        two.commit()
        assert migrations()[-1].name == migration.result()[-1]


def test_a_transaction_that_waits_behind_a_migration_is_not_refused(
    url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what the migration still lacks, and PostgreSQL looks for a deadlock while the migration tries for that."""
    migrate_until(url, OLD, monkeypatch)
    with psycopg.connect(url) as one, psycopg.connect(url) as two, psycopg.connect(url, autocommit=True) as watch:
        two.execute("SET deadlock_timeout = '100ms'")
        two.execute("LOCK TABLE queue_message_pause IN ACCESS SHARE MODE")
        one.execute("LOCK TABLE queue_message IN ACCESS SHARE MODE")
        migration = pool.submit(migrate, url)
        wait_until_waiting(migration, watch, "queue_message")
        behind = pool.submit(two.execute, "LOCK TABLE queue_message IN ACCESS SHARE MODE")
        wait_until_held_up(watch, two.info.backend_pid)
        one.commit()
        behind.result()
        two.commit()
        assert migrations()[-1].name == migration.result()[-1]
