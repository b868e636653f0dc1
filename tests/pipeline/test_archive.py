"""The archive's columns, and the pipeline's connection."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.errors import PipelineError, UnreachableError
from relay.pipeline.source.columns import ArchiveColumn, schema_of
from relay.pipeline.source.database import Database
from tests.support.servers.logins import login


def test_the_lake_has_the_archives_columns_in_its_own_types(database: Database) -> None:
    """Identity and cursors are numbers, contents are the server's text, and the day comes last."""
    schema = schema_of(database.columns())

    assert [pa.int64()] * 3 == [schema.field(name).type for name in ("xid", "seq", "archived_xid")]
    assert [pa.string()] * 3 == [schema.field(name).type for name in ("id", "content", "replay_of")]
    assert [pa.binary(), pa.int32(), pa.timestamp("us", "UTC")] == [schema.field(name).type for name in ("body", "attempts", "archived_at")]
    assert ["archived_xid", "day"] == schema.names[-2:]


def test_a_column_that_an_owner_adds_is_there_in_catalog_order(database: Database, database_url: str) -> None:
    """Its type, if the lake knows none, becomes text."""
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE queue_message_archive ADD tenant int8, ADD amount numeric(30, 2)")

    assert [ArchiveColumn("tenant", "int8"), ArchiveColumn("amount", "numeric")] == database.columns()[-2:]
    assert pa.string() == ArchiveColumn("amount", "numeric").field.type


def test_a_database_without_the_schema_says_what_to_do(empty_database_url: str) -> None:
    """One sentence, and its exit code is that of a refusal."""
    with Database(empty_database_url) as database, pytest.raises(PipelineError, match="run `relay migrate`") as refused:
        database.columns()

    assert 1 == refused.value.exit_code


def test_a_server_that_is_away_has_an_exit_code_of_its_own(unused_tcp_port: int) -> None:
    """No server listens there; the sentence names the setting, and no password."""
    away = Database(f"postgresql://someone:hidden@127.0.0.1:{unused_tcp_port}/x")

    with pytest.raises(UnreachableError, match="RELAY_PIPELINE_DATABASE_URL") as refused:
        away.columns()

    assert 4 == refused.value.exit_code
    assert "hidden" not in f"{refused.value} {away!r}"


def test_a_lost_connection_is_opened_anew(database: Database, database_url: str) -> None:
    """The statement that meets the loss fails, the next one runs."""
    database.columns()
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox-relay pipeline'")

    with pytest.raises(UnreachableError):
        database.columns()
    assert database.columns()


def test_a_login_without_the_role_is_told_its_name(database_url: str) -> None:
    """Reading the columns needs no right to the rows, reading the setting does."""
    with login(database_url) as nobody, Database(nobody) as database, pytest.raises(PipelineError, match="relay grant etl LOGIN"):
        database.fetch("read_registered")


def test_what_the_environment_said_is_written_out_for_other_machines(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host, port, login and password of `PG*` are in the conninfo that tasks get."""
    for name, value in conninfo_to_dict(database_url).items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))

    with Database("") as database:
        complete = conninfo_to_dict(database.complete_conninfo("test"))

    assert conninfo_to_dict(database_url).items() <= {name: str(value) for name, value in complete.items()}.items()
