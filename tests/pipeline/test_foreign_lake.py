"""A lake of another outbox: no job reads its messages into this one, or writes there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay.errors import PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.erase import job as erase
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import job as metrics
from relay.pipeline.reconcile import job as reconcile
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.report import job as report
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.lake.rows import NOON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
DAY = timedelta(days=1)
WRITTEN = ("queue_message", "queue_message_stats_window", "queue_message_replay_ledger")
Job = Callable[[Lake, Database, "SparkSession", Path], object]


def quiet(_: str) -> None:
    """Print no progress."""


JOBS: dict[str, Job] = {
    "compact": lambda lake, database, spark, _: compact.run(lake=lake, database=database, say=quiet, spark=lambda: spark),
    "erase": lambda lake, database, *_: erase.run(lake=lake, database=database, say=quiet, keys=["k"]),
    "export": lambda lake, database, spark, _: export.run(lake=lake, database=database, say=quiet, spark=lambda: spark),
    "metrics": lambda lake, database, spark, _: metrics.run(lake=lake, database=database, say=quiet, spark=lambda: spark),
    "reconcile": lambda lake, database, spark, _: reconcile.run(
        lake=lake,
        database=database,
        say=quiet,
        spark=lambda: spark,
        question=reconcile.Question(since=NOON, until=NOON + timedelta(days=1)),
    ),
    "replay": lambda lake, database, *_: replay.run(lake=lake, database=database, say=quiet, selection=Selection(result="success")),
    "report": lambda lake, database, spark, folder: report.run(
        lake=lake, database=database, say=quiet, path=folder / "report.html", spark=lambda: spark
    ),
    "verify": lambda lake, database, *_: verify.run(lake=lake, database=database, say=quiet),
}


@pytest.fixture
def foreign(archived: Archived, exported: Callable[..., export.Exported], lake: Lake, request: pytest.FixtureRequest) -> Lake:
    """A lake that names another origin of its rows."""
    archived({}, {"routing_key": "other"})
    exported()
    lake.opened("archive").alter.set_table_properties({f"outbox_relay.{request.param}": "shop"}, raise_if_not_exists=False)
    return lake


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("foreign", ["database", "system_identifier", "schema"], indirect=True)
def test_no_job_takes_the_lake_of_another_outbox(
    foreign: Lake, database: Database, database_url: str, spark: SparkSession, tmp_path: Path, job: str
) -> None:
    """Each says whose lake it is, and what to correct."""
    version = foreign.opened("archive").version()

    with pytest.raises(PipelineError, match=r"^The lake holds the archive of \w+ shop, and this is .*: .*correct RELAY_LAKE_URL"):
        JOBS[job](foreign, database, spark, tmp_path)

    assert version == foreign.opened("archive").version()
    assert [] == list(tmp_path.glob("*.html"))
    with psycopg.connect(database_url) as connection:
        assert [] == [table for table in WRITTEN if connection.execute(f"SELECT FROM {table}".encode()).fetchone()]
