"""A DBA can get what migrate would run, a dump restores, and pg_cron runs the maintenance tasks where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from relay.devservers.borrowed import BorrowedPostgres
from relay.devservers.postgres import Postgres
from relay.postgres.schema.migrate import check, migrate, render
from tests.support.servers.logins import own_role
from tests.support.servers.shared import Databases

CATALOG = """
    SELECT 'relation', relname::text, array_to_string(relacl, ' ') FROM pg_class WHERE relname LIKE 'queue%'
    UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE indexname LIKE 'queue%'
    UNION ALL SELECT 'function', proname, pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'queue%' AND prokind <> 'a'
    UNION ALL SELECT 'aggregate', aggfnoid::text, concat_ws(' ', aggtransfn, aggcombinefn, aggtranstype::regtype, aggfinalfn)
        FROM pg_aggregate WHERE aggfnoid::text LIKE '%queue%'
    UNION ALL SELECT 'trigger', tgname, translate(pg_get_triggerdef(oid), '()', '') FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'constraint', CASE contype WHEN 'n' THEN conrelid::regclass::text ELSE conname END, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE conname LIKE 'queue%'
    UNION ALL SELECT 'setting', name, value FROM queue_message_setting
    UNION ALL SELECT 'migration', name, checksum FROM queue_message_migration
    ORDER BY 1, 2, 3
"""
"""What a schema contains. From PostgreSQL 18 on, a column's NOT NULL has a name, which a restore may choose again."""


@pytest.fixture
def program(postgres_server: Postgres | BorrowedPostgres) -> Callable[[str], str]:
    """Find one of PostgreSQL's client programs, that of the server if it has them."""

    def find(name: str) -> str:
        beside = isinstance(postgres_server, Postgres) and Path(postgres_server.bin, name)
        found = str(beside) if beside and beside.exists() else shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed here")
        return found

    return find


def _catalog(url: str) -> list[tuple[str, str, str]]:
    """The catalogue, with the outbox's own roles by their kinds."""
    with psycopg.connect(url) as connection:
        prefix = own_role(connection, "")
        return [(kind, name, (text or "").replace(prefix, "own_")) for kind, name, text in connection.execute(CATALOG).fetchall()]


def test_the_printed_sql_does_what_migrate_does(databases: Databases, database_url: str, program: Callable[[str], str]) -> None:
    """A DBA with psql ends with the same relations, functions, triggers, constraints, grants and settings."""
    name = databases.create()
    url = databases.url(name)

    subprocess.run([program("psql"), "-qX", url], input=render(), text=True, check=True, timeout=60, stdout=subprocess.DEVNULL)

    assert _catalog(database_url) == _catalog(url)
    assert [] == check(url)
    databases.drop(name)


def test_only_what_is_missing_can_be_printed() -> None:
    """With names as check returns them, the others are left out."""
    text = render(schema="Odd name", names=["0012_cron"], seed={"notify": "off"})

    assert 'CREATE FUNCTION "Odd name".queue_message_cron()' in text
    assert 'CREATE TABLE "Odd name".queue_message (' not in text
    assert """jsonb_each_text('{"notify": "off"}'::jsonb)""" in text


def test_a_dump_restores_with_its_messages(databases: Databases, database_url: str, program: Callable[[str], str]) -> None:
    """Queue and archive come back row by row: nothing in a check or a default depends on a search path."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """INSERT INTO queue_message (exchange, ordering_key, options) VALUES ('e', 'k', '{"headers": {"a": 1}}'), ('e', 'k', '{}')"""
        )
        connection.execute("SELECT queue_message_key_skip('k')")
    name = databases.create()

    dump = subprocess.run([program("pg_dump"), database_url], capture_output=True, check=True, timeout=60).stdout
    subprocess.run(
        [program("psql"), "-qX", "-v", "ON_ERROR_STOP=1", databases.url(name)],
        input=dump,
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )

    assert _catalog(database_url) == _catalog(databases.url(name))
    with psycopg.connect(databases.url(name)) as connection:
        states = connection.execute("SELECT state FROM queue_message_state").fetchall()
    assert ["discarded", "ready"] == sorted(state for (state,) in states)
    databases.drop(name)


@pytest.mark.ids("A12", "A13", "A30")
def test_pg_cron_gets_its_jobs_once(say: Callable[[str], None]) -> None:
    """Where the extension is, sweep and notifications run each minute from the database alone, under names that carry the schema."""
    settings = ("shared_preload_libraries=pg_cron", "cron.database_name=postgres")
    if not list(Path("/usr/lib/postgresql").glob("*/lib/pg_cron.so")):
        pytest.skip("pg_cron is not installed here (apt-get install postgresql-15-cron); the container tests run it")
    with (
        devservers.postgres(say=say, settings=settings, private=True) as server,
        psycopg.connect(server.url, autocommit=True) as connection,
    ):
        connection.execute("CREATE EXTENSION pg_cron")
        migrate(server.url)
        migrate(server.url, schema="Odd name")
        migrate(server.url)

        jobs = connection.execute("SELECT jobname, schedule, command FROM cron.job").fetchall()
        assert len(jobs) == 2 * 6
        assert ("queue_message public sweep", "* * * * *", "SELECT public.queue_message_sweep_minute()") in jobs
        assert ("queue_message Odd name renotify", "* * * * *", 'SELECT "Odd name".queue_message_renotify()') in jobs
        for _, _, command in jobs:
            connection.execute(command.encode())
