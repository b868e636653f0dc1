"""export --again where files of the lake are lost or damaged: their rows are taken from PostgreSQL, if it still has the day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.export import again
from relay.pipeline.lake import witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import DAY, NEXT, NOON, AddAgain, faults, verified
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.damaging import flip
from tests.support.lake.exporting import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def file_of(lake: Lake, day: date = DAY) -> Path:
    """The first file of a day."""
    return Path(lake.place.url, TABLE, min(file.path for file in files(lake.opened(TABLE)) if file.day == day))


def truncate(path: Path) -> None:
    """Leave out the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [Path.unlink, truncate, flip])
def test_rows_of_a_lost_file_are_taken_from_postgresql_again(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain, damage: Callable[[Path], None]
) -> None:
    """Those of its day alone, which may be dropped afterwards; a day that is not named is left as it is."""
    for rows in (
        [{"seq": 9, "archived_at": NOON + timedelta(days=1)}],
        [{"seq": 1}, {"seq": 2, "result": "failed"}],
        [{"seq": 3}, {"seq": 4}],
    ):
        archived(*rows)
        export(lake, database)
    kept, other = file_of(lake, NEXT).read_bytes(), file_of(lake, NEXT)
    damage(file_of(lake))
    other.unlink()

    done = add_again()

    assert [(DAY, 2, 4, None)] == [(one.day, one.added, one.rows, one.difference) for one in done.days]
    assert ["queue_message_archive_20240502"] == list(witness.run(lake, database, lambda _: None).damage)
    other.write_bytes(kept)
    assert set() == verified(lake, database)
    assert in_postgres(database_url) == in_lake(lake)


def test_rows_of_all_files_are_taken_again(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> None:
    """Of several days, whose log alone is left."""
    archived({"seq": 1}, {"seq": 2, "archived_at": NOON + timedelta(days=1)}, {"seq": 3, "result": "rejected"})
    export(lake, database)
    for day in (DAY, NEXT):
        file_of(lake, day).unlink()

    assert 3 == add_again(DAY, NEXT).added
    assert in_postgres(database_url) == in_lake(lake)
    assert set() == verified(lake, database)


def test_a_lost_file_of_a_day_that_postgresql_has_dropped_is_needed_from_a_copy(
    archived: Archived, lake: Lake, database: Database, database_url: str, spark: SparkSession
) -> None:
    """The table still names the file, so that no reader takes the loss for an empty day."""
    archived({}, {"result": "failed"})
    export(lake, database)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("DROP TABLE queue_message_archive_20240501")
    file_of(lake).unlink()
    version = lake.opened(TABLE).version()

    with pytest.raises(LakeError, match=r"has dropped the day 2024-05-01, which a copy .* alone may have: the file \S+ is missing\.$"):
        again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])

    assert version == lake.opened(TABLE).version()
    assert {"damaged"} == verified(lake, database)


def test_what_a_lost_file_alone_had_is_told_of(
    archived: Archived, lake: Lake, database: Database, database_url: str, spark: SparkSession
) -> None:
    """A dead message that retention has deleted is in neither place then; the day is not called whole."""
    archived({}, {"result": "failed", "seq": 7})
    export(lake, database)
    for _ in range(2):  # the first look at a day that is verified counts what the lake has of it
        assert set() == verified(lake, database)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("DELETE FROM queue_message_archive WHERE seq = 7")
    file_of(lake).unlink()

    done = again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])

    assert 1 == done.added
    assert {"damaged"} == verified(lake, database)


def test_a_day_whose_rows_are_still_to_come_again_is_not_dropped(
    archived: Archived,
    lake: Lake,
    database: Database,
    database_url: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    add_again: AddAgain,
) -> None:
    """The job ends between the two commits; the next run continues."""
    archived({}, {})
    export(lake, database)
    assert set() == verified(lake, database)
    file_of(lake).unlink()

    with faults(monkeypatch, lake, "after"):
        done = again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])

    assert (0, (DAY,), PipelineError.exit_code) == (done.added, done.unfinished, done.exit_code)
    assert "not today" in str(done.failure)
    assert [] == in_lake(lake)
    assert {"damaged"} == verified(lake, database)
    with psycopg.connect(database_url, autocommit=True) as owner:
        assert ("unverified",) == owner.execute("SELECT (queue_message_drop_day('queue_message_archive_20240501', true)).action").fetchone()
    assert 2 == add_again().added
    assert set() == verified(lake, database)
