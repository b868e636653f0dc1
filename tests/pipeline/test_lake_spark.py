"""The lake's tables in Spark, and the session itself."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from relay.errors import PipelineError
from relay.pipeline.lake import spark_reader
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.source.columns import DAY
from relay.pipeline.spark.session import spark_session
from relay.pipeline.spark.tasks import by_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("text", pa.string()), DAY])
ROWS = [
    {"number": year, "at": datetime(year, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "text": "\x01'\"\U0001f600", "day": date(year, 1, 1)}
    for year in (1, 1500, 2024, 9999)
]
MICROSECONDS = "SELECT number, unix_micros(at) AS at, text, CAST(day AS string) AS day FROM {found} ORDER BY number"


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """A lake with a table of four days, and one of none."""
    lake.append(lake.create("numbers", SCHEMA), "numbers", [pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)])
    lake.create("nothing", SCHEMA)
    return lake


def expected() -> list[tuple[object, ...]]:
    """ROWS with times as microseconds, which no calendar can bend."""
    micros = pa.array([row["at"] for row in ROWS], SCHEMA.field("at").type).cast(pa.int64()).to_pylist()
    return [(row["number"], at, row["text"], str(row["day"])) for row, at in zip(ROWS, micros, strict=True)]


@pytest.mark.spark
def test_spark_reads_what_was_written_and_only_the_days_asked_for(spark: SparkSession, filled: Lake) -> None:
    """The first centuries are not moved to another calendar, and the day has its type."""
    found = filled.dataframe(spark, "numbers")

    assert expected() == [tuple(row) for row in spark.sql(MICROSECONDS, found=found).collect()]
    assert [2024] == [row.number for row in filled.dataframe(spark, "numbers", days=[date(2024, 1, 1)]).collect()]
    assert [] == filled.dataframe(spark, "nothing").collect()


@pytest.mark.spark
def test_a_folder_is_read_whatever_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """Blanks and other letters are no escapes of a URL, and a symbolic link stays the name that was given."""
    (tmp_path / "data ü").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data ü")
    lake = Lake(str(tmp_path / "data ü"))
    lake.append(lake.create("numbers", SCHEMA), "numbers", [pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)])

    for folder in ("data ü", "link"):
        found = Lake(str(tmp_path / folder)).dataframe(spark, "numbers", days=[date(2024, 1, 1), date(9999, 1, 1)])
        assert {2024, 9999} == {row.number for row in found.collect()}, folder


@pytest.mark.spark
def test_the_way_for_object_stores_gives_the_same_rows(spark: SparkSession, filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads inside Spark's tasks; here from the same folder."""
    handle = filled.opened("numbers")
    read = spark_reader._reader(filled.place, handle.file_uris(), schema_of(handle))

    found = by_number(spark, 4, read, filled.dataframe(spark, "numbers").schema)

    assert expected() == [tuple(row) for row in spark.sql(MICROSECONDS, found=found).collect()]


@pytest.mark.spark
def test_a_running_session_is_used_again(spark: SparkSession) -> None:
    """A notebook's or spark-submit's own session holds."""
    assert spark_session("another") is spark


def test_a_machine_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)

    with pytest.raises(PipelineError, match="Java 17 or 21"):
        spark_session("relay tests")
