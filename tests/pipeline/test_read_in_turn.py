"""Files of the lake whose turn it is to be read whole: by Spark's tasks where there are several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import PipelineError
from relay.pipeline.lake import damage, data_files, witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Start
from tests.pipeline.conftest import Archived
from tests.support.lake.damaging import flip, make_due
from tests.support.lake.exporting import export
from tests.support.servers.small_disk import read_only, refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FILES = 9


@pytest.fixture
def due(lake: Lake, database: Database, archived: Archived, database_url: str) -> Lake:
    """A lake of some files, all of which are to be read."""
    for _ in range(FILES):
        archived({}, {})
        export(lake, database)
    make_due(database_url)
    return lake


@pytest.fixture
def spoiled(due: Lake) -> Lake:
    """The same lake; one file has a changed byte."""
    flip(Path(due.place.url, TABLE, files(due.opened(TABLE))[0].path))
    return due


def test_spark_reads_what_is_due(spoiled: Lake, database: Database, spark: SparkSession) -> None:
    """Each file in a task; what one finds arrives as it would from this process."""
    spark.sparkContext.setJobGroup("turn", "")

    found = witness.run(spoiled, database, lambda _line: None, lambda: spark)

    assert (FILES, FILES) == (found.files, found.read)
    assert "is missing or damaged" in found.damage["queue_message_archive_20240501"]
    assert 1 == len(spark.sparkContext.statusTracker().getJobIdsForGroup("turn"))


def missing() -> SparkSession:
    """A machine without Spark."""
    raise PipelineError("PySpark is missing: install outbox-relay[pipeline].")


@pytest.mark.parametrize("start", [None, missing])
def test_without_spark_they_are_read_one_after_the_other(spoiled: Lake, database: Database, start: Start | None) -> None:
    """What is found is the same, and the reason is said."""
    said: list[str] = []

    found = witness.run(spoiled, database, said.append, start)

    assert FILES == found.read
    assert "is missing or damaged" in found.damage["queue_message_archive_20240501"]
    assert (start is missing) == any("PySpark is missing" in line for line in said)


def told(url: str) -> tuple[object, ...] | None:
    """Whether PostgreSQL takes the lake for seen, and why not."""
    with psycopg.connect(url) as owner:
        return owner.execute("SELECT seen, problem FROM queue_message_lake").fetchone()


def test_a_machine_that_cannot_start_spark_says_nothing_of_the_lake(due: Lake, database_url: str, tmp_path: Path) -> None:
    """No temporary file can be written here: the job does its work without Spark, and the lake was seen."""
    if refusal():
        pytest.skip(refusal())
    env = {**os.environ, "RELAY_DATABASE_URL": database_url, "RELAY_LAKE_URL": due.place.url}
    words = [*read_only(tmp_path), sys.executable, "-m", "relay", "pipeline", "verify"]

    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env)

    assert 0 == done.returncode, done.stderr
    assert (True, None) == told(database_url)


def test_an_error_of_the_machine_is_not_kept_as_one_of_the_lake(due: Lake, database: Database, database_url: str) -> None:
    """Spark starts while the lake is looked at, and has errors of its own."""

    def crowded() -> SparkSession:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        witness.run(due, database, lambda _line: None, crowded)

    assert (False, None) == told(database_url)


@pytest.mark.parametrize("start", ["tasks", "here"])
def test_a_second_look_reads_only_what_the_first_has_not_read_well(
    spoiled: Lake,
    database: Database,
    database_url: str,
    archived: Archived,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
) -> None:
    """Next to an export it reads the file that came meanwhile, and the one that could not be read."""
    looks: list[int] = []
    unreadable, listed = damage.unreadable, data_files.sizes

    def counted(check: Any, there: Any, carrier: Any) -> Any:
        looks.append(len(there))
        return unreadable(check, there, carrier)

    def list_and_export(*words: Any) -> dict[str, int]:
        found = listed(*words)
        monkeypatch.setattr(witness, "sizes", listed)
        archived({})
        with Database(database_url) as other:
            export(spoiled, other)
        return found

    monkeypatch.setattr(damage, "unreadable", counted)
    monkeypatch.setattr(witness, "sizes", list_and_export)

    found = witness.run(spoiled, database, lambda _line: None, (lambda: spark) if start == "tasks" else None)

    assert (FILES + 1, [FILES, 2]) == (found.files, looks)
    assert ["queue_message_archive_20240501"] == list(found.damage)
