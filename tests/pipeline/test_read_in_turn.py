"""Files of the lake whose turn it is to be read whole: by Spark's tasks where there are several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay.errors import PipelineError
from relay.pipeline import witness
from relay.pipeline.archive import TABLE
from relay.pipeline.carried import Start
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.lake_log import files
from tests.pipeline.conftest import Archived
from tests.support.exporting import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FILES = 9


@pytest.fixture
def due(lake: Lake, database: Database, archived: Archived, database_url: str) -> Lake:
    """A lake of some files, all of which are to be read; one has a changed byte."""
    for _ in range(FILES):
        archived({}, {})
        export(lake, database)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE queue_message_export_position SET seen_at = clock_timestamp() - interval '30 days'")
    path = Path(lake.place.url, TABLE, files(lake.opened(TABLE))[0].path)
    path.write_bytes(bytes(path.stat().st_size))
    return lake


def test_spark_reads_what_is_due(due: Lake, database: Database, spark: SparkSession) -> None:
    """Each file in a task; what one finds arrives as it would from this process."""
    spark.sparkContext.setJobGroup("turn", "")

    found = witness.run(due, database, lambda _line: None, lambda: spark)

    assert (FILES, FILES) == (found.files, found.read)
    assert "cannot be read" in found.damage["queue_message_archive_20240501"]
    assert 1 == len(spark.sparkContext.statusTracker().getJobIdsForGroup("turn"))


def missing() -> SparkSession:
    """A machine without Spark."""
    raise PipelineError("PySpark is missing: install outbox-relay[pipeline].")


@pytest.mark.parametrize("start", [None, missing])
def test_without_spark_they_are_read_one_after_the_other(due: Lake, database: Database, start: Start | None) -> None:
    """What is found is the same, and the reason is said."""
    said: list[str] = []

    found = witness.run(due, database, said.append, start)

    assert FILES == found.read
    assert "cannot be read" in found.damage["queue_message_archive_20240501"]
    assert (start is missing) == any("PySpark is missing" in line for line in said)
