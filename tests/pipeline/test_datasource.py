"""The live archive in Spark, for analysts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import col, lit

from relay.errors import PipelineError
from relay.pipeline import datasource
from relay.pipeline.source.database import Database
from tests.support.database.archives import SETTLED
from tests.support.lake.contents import in_postgres, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

Archived = Callable[..., list[tuple[int, int]]]
pytestmark = pytest.mark.spark


@contextmanager
def pushing(spark: SparkSession, value: str) -> Iterator[None]:
    """Filters go to PostgreSQL, or stay with Spark."""
    spark.conf.set(datasource.PUSHDOWN, value)
    try:
        datasource.register(spark)
        yield
    finally:
        spark.conf.unset(datasource.PUSHDOWN)


@pytest.fixture
def archive(spark: SparkSession, database_url: str) -> DataFrameReader:
    """A reader of this test's archive."""
    datasource.register(spark)
    return spark.read.format("queue_message_archive").option("url", database_url)


def test_it_gives_every_row_as_postgresql_has_it(archived: Archived, archive: DataFrameReader, database_url: str) -> None:
    """All columns with their types, from as many tasks as asked for, each row once."""
    archived(*({"content": f'"\\u0001{number}"', "body": bytes([number]), "expires_at": SETTLED} for number in range(20)))

    found = archive.option("partitions", "3").load()

    assert 3 == found.rdd.getNumPartitions()
    assert in_postgres(database_url) == rows_of(found.toArrow())


def test_only_the_columns_asked_for_travel(archived: Archived, archive: DataFrameReader) -> None:
    """In the order of .schema(…)."""
    archived({"exchange": "audit", "attempts": 3})

    assert [("audit", 3)] == [tuple(row) for row in archive.schema("exchange string, attempts int").load().collect()]


@pytest.mark.parametrize("value", ["true", "false"])
def test_filters_select_the_same_rows_wherever_they_are_judged(
    value: str, archived: Archived, spark: SparkSession, database_url: str
) -> None:
    """Quotes, percent signs and what looks like one of our own marks are values like others."""
    odd = "a'b\"%s@columns@\\"
    archived(
        {"exchange": odd, "attempts": 1},
        {"exchange": "A", "attempts": 2},
        {"exchange": "\u00e4", "archived_at": SETTLED + timedelta(days=1)},
    )

    with pushing(spark, value):
        found = spark.read.format("queue_message_archive").option("url", database_url).load()

        def chosen(condition: Any) -> list[str]:
            return sorted(row.exchange for row in found.where(condition).collect())

        assert [odd] == chosen(col("exchange") == odd)
        assert ["A"] == chosen((col("attempts") >= 2) & (col("exchange") < "a"))
        assert ["\u00e4"] == chosen(col("archived_at") > lit(SETTLED))
        assert ["A", "\u00e4"] == chosen(col("exchange").isin("A", "\u00e4"))
        assert [] == chosen(col("ordering_key").isNotNull())


def test_a_filter_that_is_pushed_reaches_postgresql(archived: Archived, spark: SparkSession, database_url: str) -> None:
    """Otherwise a row that no lake can hold would fail the statement."""
    archived({"exchange": "good"}, {"exchange": "bad", "expires_at": "infinity"})

    with pushing(spark, "true"):
        found = spark.read.format("queue_message_archive").option("url", database_url).load()
        assert 1 == found.where(col("exchange") == "good").count()


def test_no_secret_stands_in_a_plan(
    archived: Archived, archive: DataFrameReader, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URL is an option that Spark redacts, and the password is nowhere else."""
    archived({})
    with Database(database_url) as database, database.connection() as connection:
        password = connection.info.password

    found = archive.load().where("attempts > 0")
    found.explain(mode="extended")
    shown = capsys.readouterr().out + str(found._jdf.queryExecution().toString())

    assert "Physical Plan" in shown
    assert password
    assert password not in shown


def test_a_column_that_is_not_there_is_named(database_url: str) -> None:
    """Before any row is asked for."""
    with pytest.raises(PipelineError, match="no column price"):
        datasource.ArchiveReader("", "", [], {"price": True}, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partitions": "abc"}, "The option partitions of queue_message_archive is 'abc': give a whole number from 1 on."),
        ({"partitions": "0"}, "is '0': give a whole number"),
        ({"partitions": "-3"}, "is '-3': give a whole number"),
        ({"partitions": "1.5"}, "is '1.5': give a whole number"),
        ({"partitions": "9" * 5_000}, "give a whole number"),
        ({"partition": "2"}, "has no option partition: it takes url, schema, partitions."),
    ],
)
def test_a_wrong_option_is_a_sentence(options: dict[str, str], sentence: str) -> None:
    """Before PostgreSQL is asked anything."""
    with pytest.raises(PipelineError, match=re.escape(sentence)):
        datasource.ArchiveSource({"url": "postgresql://nobody@127.0.0.1:1/none", **options})


def test_without_any_database_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver alone would try a socket on this machine."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("PG", "RELAY_"))]:
        monkeypatch.delenv(name)

    with pytest.raises(PipelineError, match=r"knows no database: set RELAY_PIPELINE_DATABASE_URL"):
        datasource.ArchiveSource({})

    (tmp_path / "url").write_text("postgresql://someone@db/shop\n", encoding="utf-8")
    monkeypatch.setenv("RELAY_PIPELINE_DATABASE_URL_FILE", str(tmp_path / "url"))
    assert ("postgresql://someone@db/shop", "public", 1) == datasource.Given.of({})


def test_sparks_error_says_the_sentence(archive: DataFrameReader) -> None:
    """Spark puts words of its own around it."""
    with pytest.raises(AnalysisException) as refused:
        archive.option("partitions", "abc").load()

    assert "PipelineError: The option partitions of queue_message_archive is 'abc': give a whole number from 1 on." in str(refused.value)
