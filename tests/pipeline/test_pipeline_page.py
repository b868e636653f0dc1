"""The programs in docs/pipeline.md that read the lake and the live archive: executed as they stand there, on a lake of the test's own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.lake import Lake
from tests.support import docs, lake_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

DAY = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Three successes and a dead message of that day, and a success of the day before."""
    rows = [lake_rows.row(number, at=DAY) for number in range(1, 4)]
    lake_rows.append(lake, *rows, lake_rows.dead(4, "unroutable", at=DAY), lake_rows.row(5, at=DAY.replace(day=17)))
    return lake


def execute(name: str, lake: Lake, url: str = "") -> None:
    """Run the block after the comment `example: name`, with this lake in place of the page's, and a URL where it reads PostgreSQL.

    The URL is an option here because the tests' session began before this test's database: Spark keeps the environment of its start.
    """
    page = docs.text_of(docs.ROOT / "docs" / "pipeline.md")
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
