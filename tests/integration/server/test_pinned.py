"""What holds on every connection, whatever the environment, the role or the database is set to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.errors import MigrationError, StoreError
from relay.message import Archive, Result
from relay.pipeline.source import adbc
from relay.pipeline.source.database import Database
from relay.ports import SettleRow
from relay.postgres.notification_listener import NotificationListener
from relay.postgres.operator_session import OperatorSession
from relay.postgres.schema import migrate as migrations
from relay.postgres.schema.migrate import migrate
from relay.postgres.session import Session
from relay.postgres.session_settings import DEFAULTS, ENCODING, NOTICE, OWN, PATH, PINNED, pin
from relay.queries.statements import Statements
from tests import ROOT
from tests.support.database.queue import MakeStore, Queue, until
from tests.support.servers.logins import login
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.shared import Databases, Say

HOSTILE = {
    "client_encoding": "latin1", "datestyle": "German, DMY", "intervalstyle": "iso_8601", "standard_conforming_strings": "off",
    "timezone": "Asia/Kathmandu",
}  # fmt: skip
HOSTILE_TO_OURS = {
    "array_nulls": "off", "bytea_output": "escape", "client_min_messages": "error", "extra_float_digits": "-15",
    "transform_null_equals": "on",
}  # fmt: skip
DECOYS = "decoys, pg_catalog, public"
"""A path with a schema of somebody else's."""
HARMLESS = {
    "backslash_quote": "off", "check_function_bodies": "off", "escape_string_warning": "off", "row_security": "off",
    "xmloption": "document",
}  # fmt: skip
"""What else a role can set and what changes how a statement is read or written, but none of ours."""
POOLED = {"client_encoding": ENCODING, **PINNED}
WANTED = {**POOLED, **DEFAULTS, "search_path": PATH}


def shown(names: Iterable[str]) -> str:
    """The statement that shows these settings."""
    return "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)


SHOWN, SHOWN_BY_A_POOL = shown(WANTED), shown(POOLED)
EXPECTED, EXPECTED_OF_A_POOL = tuple(WANTED.values()), tuple(POOLED.values())


@pytest.fixture
def hostile(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A login whose role, whose database and whose environment all say otherwise."""
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    monkeypatch.setenv("PGDATESTYLE", "SQL, DMY")
    monkeypatch.setenv("PGOPTIONS", "-c standard_conforming_strings=off -c intervalstyle=sql_standard")
    with login(database_url, "queue_message_etl", "queue_message_relay", "queue_message_operator") as url:
        parts = conninfo_to_dict(url)
        with psycopg.connect(database_url, autocommit=True, client_encoding="UTF8") as owner:
            for name, value in {**HOSTILE, **HOSTILE_TO_OURS, **HARMLESS}.items():
                owner.execute(f"ALTER ROLE \"{parts['user']}\" SET {name} = '{value}'".encode())
                owner.execute(f"ALTER DATABASE \"{parts['dbname']}\" SET {name} = '{value}'".encode())
            owner.execute(f'ALTER ROLE "{parts["user"]}" SET search_path = {DECOYS}'.encode())
        yield url


async def test_the_relays_connection_is_pinned(hostile: str) -> None:
    """Also that of a relay that prepares nothing, as behind a pool: it sets what the pool knows of, and here, where none is, the path."""
    direct = shown([*POOLED, "search_path"]), (*EXPECTED_OF_A_POOL, PATH)
    for prepare, statement, expected in ((True, SHOWN, EXPECTED), (False, *direct)):
        session = Session(hostile, application_name="relay", prepare=prepare)
        assert [expected] == await session.fetch(statement.encode(), {})
        await session.aclose()


async def test_the_server_ends_a_statement_whose_relay_has_hung_up(
    database_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a task over the whole queue would continue concurrently with the next one, and keep its locks."""
    monkeypatch.setattr("relay.postgres.session.OWN", OWN.replace(b"10s", b"1s"))
    session = Session(database_url, application_name="chore", answer=lambda: 1)
    running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'chore' AND datname = current_database()"
    await session.open()
    assert 1 == await queue.value(running)
    with pytest.raises(StoreError, match="did not answer"):
        await session.fetch(b"SELECT pg_sleep(600)", {})

    async def is_gone() -> bool:
        return bool(await queue.value(running) == 0)

    await until(is_gone, 60)


def test_a_server_that_cannot_notice_it_is_used_all_the_same(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the value on some systems, and older ones do not know the setting."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        pin(connection)
        assert ("10s",) == connection.execute("SHOW client_connection_check_interval").fetchone()
        for before, after in ((b"'10s'", b"'-1s'"), (b"client_connection_check_interval", b"no_such_setting")):
            connection.execute(NOTICE.replace(before, after))


async def test_a_pool_does_not_hand_on_that_a_client_is_looked_after(database_url: str) -> None:
    """In its transaction mode settings would stay for others."""
    session = Session(database_url, application_name="relay", prepare=False)
    assert [("0",)] == await session.fetch(b"SHOW client_connection_check_interval", {})
    await session.aclose()


async def test_the_listening_connection_is_pinned(hostile: str) -> None:
    """It hears, and its texts are read alike."""
    listener = NotificationListener(conninfo=hostile, application_name="ear", statements=Statements("public"), on_hint=lambda: None)
    await listener.open()

    assert listener._connection is not None
    assert EXPECTED == await (await listener._connection.execute(SHOWN.encode())).fetchone()
    await listener.aclose()


def test_the_consoles_and_the_migrations_connection_are_pinned(hostile: str) -> None:
    """What an operator reads, and what is written into the catalog."""
    with OperatorSession(hostile, schema="public") as console:
        assert [{"all": [*EXPECTED]}] == console.connection.execute(f"SELECT ARRAY[{SHOWN[7:]}] AS all".encode()).fetchall()
    with migrations._connection(hostile, print) as connection:
        assert EXPECTED == connection.execute(SHOWN.encode()).fetchone()


def test_the_pipelines_connections_are_pinned(hostile: str) -> None:
    """That of the jobs and that of Spark's tasks, where texts travel in the client's encoding."""
    with Database(hostile) as database, database.connection() as connection:
        assert EXPECTED == connection.execute(SHOWN.encode()).fetchone()
        complete = database.complete_conninfo("test")
    with adbc.connected(complete) as task:
        assert EXPECTED == tuple(task.one(SHOWN))
        assert "→" == task.one("SELECT chr(8594)")[0]


async def test_what_is_archived_is_what_was_said(queue: Queue, make_store: MakeStore, hostile: str) -> None:
    """A null stays a null, also in an array. Every statement of a settle and of the maintenance tasks is read as usual."""
    await queue.sql(f'ALTER ROLE "{conninfo_to_dict(hostile)["user"]}" SET quote_all_identifiers = on')
    store = make_store(url=hostile)
    await store.register()
    ids = await queue.insert(2)
    batch = await store.batch()
    outcomes = (Archive(Result.SUCCESS), Archive(Result.FAILED, "code", "detail"))
    rows = [SettleRow(claim, outcome, None, 7) for claim, outcome in zip(batch.claims, outcomes, strict=True)]

    assert [] == await store.archive(batch, rows, again=False)
    told = "SELECT array_agg(ARRAY[error_code, error_detail] ORDER BY seq) FROM queue_message_archive WHERE published_at IS NULL"
    assert [[None, None], ["code", "detail"]] == await queue.value(told)
    with psycopg.connect(hostile, autocommit=True) as operator:
        for chore in ("sweep()", "ensure_partitions(9)", "retain()", f"replay('{ids[0]}')", "count()", "days_ahead()", "key_park('k')"):
            operator.execute(f"SELECT queue_message_{chore}".encode())
    assert 8 <= await queue.value("SELECT queue_message_days_ahead()")


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
async def test_a_pool_pins_what_its_client_pins(
    database_url: str, hostile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, say: Say, pool_mode: str
) -> None:
    """PgBouncer knows these settings, refuses none, and hands none on to a client that has its own."""
    assert hostile
    monkeypatch.delenv("PGOPTIONS")  # which PgBouncer may refuse
    with pgbouncer(database_url, pool_mode=pool_mode, folder=tmp_path, say=say) as url:
        session = Session(url, application_name="relay", prepare=False)
        with psycopg.connect(url, autocommit=True) as other:
            for _ in range(3):
                assert [EXPECTED_OF_A_POOL] == await session.fetch(SHOWN_BY_A_POOL.encode(), {})
                other.execute("SET standard_conforming_strings = off")
                assert ("off",) == other.execute("SHOW standard_conforming_strings").fetchone()
        await session.aclose()


def test_a_command_behind_a_pooler_leaves_the_path_of_applications(database_url: str, tmp_path: Path, say: Say) -> None:
    """In transaction mode an application would get the session next, and find none of its tables."""
    pool = pgbouncer(database_url, pool_mode="transaction", folder=tmp_path, say=say)
    with pool as url, psycopg.connect(url, autocommit=True) as application:
        [(before,)] = application.execute("SHOW search_path").fetchall()
        with OperatorSession(url, schema="public") as console, Database(url) as job, job.connection() as connection:
            for ours in (console.connection, connection):
                ours.execute("SELECT 1")
            assert "search_path" not in job.complete_conninfo("export")
        assert [(before,)] == application.execute("SHOW search_path").fetchall()


async def test_nor_does_a_relay_that_prepares_its_statements(database_url: str, tmp_path: Path, say: Say) -> None:
    """Newer poolers support prepared statements in transaction mode, so users are not asked to say that there is one."""
    pool = pgbouncer(database_url, pool_mode="transaction", folder=tmp_path, say=say)
    with pool as url, psycopg.connect(url, autocommit=True) as application:
        [(before,)] = application.execute("SHOW search_path").fetchall()
        session = Session(url, application_name="relay")
        await session.open()
        assert [(before,)] == application.execute("SHOW search_path").fetchall()
        await session.aclose()


@pytest.fixture
def ascii_url(databases: Databases) -> Iterator[str]:
    """A database whose server does not know which letters its bytes are."""
    name = databases.create()
    databases.drop(name)
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode())
        yield databases.url(name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_a_database_without_an_encoding_is_refused(ascii_url: str) -> None:
    """By the migration, the relay and the console, in one sentence with what to do."""
    sentence = r"^The database has the encoding SQL_ASCII, .* ENCODING 'UTF8' .*\.$"
    session = Session(ascii_url, application_name="relay")

    with pytest.raises(StoreError, match=sentence):
        await session.fetch(b"SELECT 1", {})
    with pytest.raises(MigrationError, match=sentence):
        migrate(ascii_url)
    with pytest.raises(StoreError, match=sentence), OperatorSession(ascii_url, schema="public"):
        pass


async def test_the_schema_reads_its_patterns_alike_where_backslashes_escape(queue: Queue) -> None:
    """For any caller, no partition seems to be missing, a setting's value is understood, and a replay's pattern stays a pattern."""
    await queue.sql("SET standard_conforming_strings = off")
    await queue.sql("SELECT queue_message_ensure_partitions()")

    assert 6 < await queue.value("SELECT partition_days_ahead FROM queue_message_status")
    await queue.sql("SELECT queue_message_config_set('max_attempts', '7')")
    assert "a b" == await queue.value("SELECT queue_message_one_line(E'a\\u0085b', 100)")


@pytest.mark.parametrize("folder", ["sql", "relay/queries", "relay/pipeline/queries"])
def test_no_plain_literal_of_ours_holds_a_backslash(folder: str) -> None:
    """It would mean something else in a session with standard_conforming_strings off; E'…' never does."""
    files = sorted((ROOT / folder).rglob("*.sql"))
    code = {file.name: re.sub(r"--.*|\bE'(?:[^'\\]|\\.|'')*'", "", file.read_text()) for file in files}

    assert files
    assert [] == [name for name, text in code.items() if "\\" in text]
