"""A look at the lake that fails after a commit undoes nothing: the job reports what it did, and why the lake was not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from relay.errors import ConflictError, PipelineError
from relay.pipeline.export import again
from relay.pipeline.export import job as export
from relay.pipeline.lake import data_files, target_table, witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake import exporting
from tests.support.lake.adding import DAY
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.relays.cli import Cli
from tests.support.servers.logins import login, own_role

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def moved(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lake is moved away when a job has committed all and begins to look at it; returns where to."""
    away, linked = Path(f"{lake.place.url}-away"), target_table.linked

    def move_and_look(*words: Any) -> Any:
        monkeypatch.setattr(witness, "linked", linked)
        Path(lake.place.url).rename(away)
        return linked(*words)

    monkeypatch.setattr(witness, "linked", move_and_look)
    return away


def test_an_export_whose_lake_is_not_seen_afterwards_says_what_it_did(
    archived: Archived, lake: Lake, moved: Path, database: Database, database_url: str, spark: SparkSession
) -> None:
    """With the sentence and the exit code of what failed; the next run finds nothing to do."""
    said: list[str] = []
    archived({}, {})

    done = export.run(lake=lake, database=database, spark=lambda: spark, say=said.append)

    assert (2, 1, PipelineError.exit_code) == (done.rows, done.batches, done.exit_code)
    assert "and there is none in" in str(done.unseen)
    assert f"the lake was not seen after the commit: {done.unseen}" == said[-1]
    moved.rename(lake.place.url)
    done = export.run(lake=lake, database=database, spark=lambda: spark, say=said.append)
    assert (0, None, 0) == (done.rows, done.unseen, done.exit_code)
    assert in_postgres(database_url) == in_lake(lake)


@pytest.mark.usefixtures("moved")
def test_days_that_were_added_are_told_of_though_the_lake_is_not_seen_afterwards(
    archived: Archived, lake: Lake, database: Database, spark: SparkSession
) -> None:
    """As behind an export."""
    archived({})
    exporting.export(lake, database)
    archived({"archived_xid": "3"})

    done = again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _line: None, days=[DAY])

    assert (1, PipelineError.exit_code) == (done.added, done.exit_code)
    assert "and there is none in" in str(done.unseen)


def test_the_exit_code_is_that_of_what_failed(
    archived: Archived, lake: Lake, database: Database, database_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs that write to the lake during each look are no reason to alert a person."""
    listed = data_files.sizes

    def list_and_export(*words: Any) -> dict[str, int]:
        found = listed(*words)
        archived({})
        with Database(database_url) as other:
            exporting.export(lake, other)
        return found

    archived({})
    monkeypatch.setattr(witness, "sizes", list_and_export)

    done = export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _line: None)

    assert (1, ConflictError.exit_code) == (done.rows, done.exit_code)
    assert "Other jobs changed the lake" in str(done.unseen)


@pytest.mark.usefixtures("spark")
def test_a_script_gets_the_result_and_the_exit_code(cli: Cli, archived: Archived, lake: Lake, database_url: str) -> None:
    """Where the login may do everything but say that the lake was seen."""
    archived({})
    with psycopg.connect(database_url) as owner:
        role = sql.Identifier(own_role(owner, "etl"))
        owner.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION queue_message_export_seen FROM {}").format(role))
    with login(database_url, "queue_message_etl") as url:
        cli.env |= {"RELAY_DATABASE_URL": url, "RELAY_LAKE_URL": lake.place.url}
        done = cli.json("pipeline", "export", code=1)

    assert (1, 1, 1) == (done["rows"], done["files"], done["exit_code"])
    assert "lacks a permission" in done["unseen"]
    assert f"the lake was not seen after the commit: {done['unseen']}" in cli.stderr
