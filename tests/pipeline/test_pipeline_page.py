"""The programs in docs/pipeline.md that read the lake and the live archive: executed as they stand there, on a lake of the test's own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate
from relay.pipeline.source.columns import DAY
from tests import ROOT
from tests.support.lake import rows as lake_rows
from tests.support.pages import docs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

NOVEMBER = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Three successes and a dead message of that day, and a success of the day before."""
    rows = [lake_rows.row(number, at=NOVEMBER) for number in range(1, 4)]
    lake_rows.append(lake, *rows, lake_rows.dead(4, "unroutable", at=NOVEMBER), lake_rows.row(5, at=NOVEMBER.replace(day=17)))
    return lake


def execute(name: str, lake: Lake, url: str = "") -> None:
    """Run the block after the comment `example: name`, with this lake in place of the page's, and a URL where it reads PostgreSQL.

    The URL is an option here because the tests' session began before this test's database: Spark keeps the environment of its start.
    """
    page = docs.text_of(ROOT / "docs" / "pipeline.md")
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found, name
    program = found[1].replace("/var/lib/outbox-lake", lake.place.url).replace(".schema(", f".option('url', {url!r}).schema(")
    exec(compile(program, name, "exec"), {})  # noqa: S102 - it is what the test is about


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("duckdb", r"shop\W+failed\W+1 .*shop\W+success\W+3 "),
        ("polars", r"unroutable\W+1 "),
        ("pandas", r"shop +order +4"),
    ],
)
def test_readers_without_spark_see_the_rows(filled: Lake, capsys: pytest.CaptureFixture[str], name: str, seen: str) -> None:
    """DuckDB, polars and pandas, each with the filter that the page has."""
    execute(name, filled)

    assert re.search(seen, capsys.readouterr().out, re.DOTALL)


def test_failure_rates_are_one_query_on_the_lake(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """By exchange and code, of what the exchange settled: two of three, and one of five without a code."""
    rows = [lake_rows.row(1), *(lake_rows.dead(number, "a.b") for number in (2, 3)), lake_rows.dead(4, None, exchange="audit")]
    rows += [lake_rows.row(number, exchange="audit") for number in range(5, 9)]
    hours = aggregate.merge(aggregate.count(lake_rows.table(rows), target_ms=10), seconds=aggregate.HOUR_SECONDS)
    handle = lake.create("stats_hour", aggregate.SCHEMA.append(DAY))
    lake.append(handle, "stats_hour", hours.append_column(DAY, hours["start"].cast(DAY.type)).to_batches())

    execute("failure-rates", lake)

    assert re.search(r"shop\W+a\.b\W+2\W+66\.667 .*audit\W+1\W+20\.0 ", capsys.readouterr().out, re.DOTALL)


@pytest.mark.spark
def test_spark_sees_the_lake(spark: SparkSession, filled: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """The session of the example is the one that runs."""
    execute("spark", filled)

    assert re.search(r"shop\| +failed\| +1\|.*shop\|success\| +4\|", capsys.readouterr().out, re.DOTALL)


@pytest.mark.spark
def test_spark_sees_the_live_archive(
    spark: SparkSession,
    lake: Lake,
    archived: Callable[..., object],
    database_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is in PostgreSQL now, exported or not."""
    archived({}, {}, {"result": "failed", "error_code": "unroutable"})

    execute("live", lake, database_url)

    assert re.search(r"orders\| +failed\| +1\|.*orders\|success\| +2\|", capsys.readouterr().out, re.DOTALL)
