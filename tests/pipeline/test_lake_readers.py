"""Who else can read the lake, and where else it can be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyarrow import fs

from relay.errors import ConflictError, UnreachableError
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.support.database.archives import SETTLED
from tests.support.lake.contents import in_lake, in_postgres, rows_of
from tests.support.servers.object_store import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Archived = Callable[..., list[tuple[int, int]]]
Export = Callable[..., export.Exported]
pytestmark = pytest.mark.spark


@pytest.fixture
def three(archived: Archived, exported: Export, lake: Lake) -> Lake:
    """Three messages in two exports: two successes of one day, and one dead message of the first year."""
    archived({"exchange": "a", "body": b"\x00\xff"}, {"exchange": "b", "content": '{"n": 123456789012345678901234567890}'})
    exported()
    archived({"exchange": "c", "result": "failed", "archived_at": SETTLED.replace(year=1), "created_at": SETTLED.replace(year=9999)})
    exported()
    return lake


def test_duckdb_reads_the_lake(three: Lake) -> None:
    """Through the Arrow data set, by name, with a filter on the partition."""
    found = three.dataset("archive")  # noqa: F841 - DuckDB finds it by this name

    rows = duckdb.execute("SELECT exchange, content, body FROM found WHERE day = DATE '2024-05-01' ORDER BY exchange").fetchall()

    assert [("a", '{"total": 1}', b"\x00\xff"), ("b", '{"n": 123456789012345678901234567890}', None)] == rows
    assert [(1, 9999)] == duckdb.execute("SELECT year(archived_at), year(created_at) FROM found WHERE exchange = 'c'").fetchall()


def test_polars_reads_the_lake(three: Lake) -> None:
    """By its own Delta reader, and from the data set."""
    lazily = pl.scan_delta(three.place.table("archive")).filter(pl.col("exchange") == "c").select("result", "day").collect()

    assert [("failed", date(1, 5, 1))] == lazily.rows()
    assert 3 == pl.scan_pyarrow_dataset(three.dataset("archive")).select(pl.len()).collect().item()


def test_pandas_reads_the_lake(three: Lake) -> None:
    """Times in microseconds, so that no year is out of its bounds."""
    frame = three.dataset("archive").to_table().to_pandas().sort_values("seq")

    assert ["a", "b", "c"] == list(frame["exchange"])
    assert "datetime64[us, UTC]" == str(frame["archived_at"].dtype)


def test_spark_reads_the_lake(three: Lake, spark: SparkSession) -> None:
    """Every row, and one day of it."""
    assert ["a", "b", "c"] == sorted(row.exchange for row in three.dataframe(spark, "archive").select("exchange").collect())
    assert ["c"] == [row.exchange for row in three.dataframe(spark, "archive", days=[date(1, 5, 1)]).select("exchange").collect()]


def run(lake: Lake, database: Database, spark: SparkSession) -> export.Exported:
    """Export into this lake."""
    return export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)


def test_a_lake_in_an_object_store(
    archived: Archived, bucket: Lake, database: Database, database_url: str, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exported twice, read by Arrow and by Spark, with the same rows; and no key is shown anywhere."""
    archived({"exchange": "a"}, {"exchange": "b", "result": "failed", "archived_at": SETTLED.replace(year=1)})
    assert 2 == run(bucket, database, spark).rows
    archived({"exchange": "c"})
    assert 1 == run(bucket, database, spark).rows

    assert in_postgres(database_url) == in_lake(bucket)
    found = bucket.dataframe(spark, "archive")
    assert in_postgres(database_url) == rows_of(found.toArrow())
    found.explain(mode="extended")
    assert HIDDEN not in "".join(capfd.readouterr())
    assert HIDDEN not in str(bucket.opened("archive").history())


def test_of_two_commits_into_an_object_store_one_is_refused(
    archived: Archived, bucket: Lake, database: Database, spark: SparkSession
) -> None:
    """As in a folder: the store's own conditional writes decide, and the loser's files are removed."""
    archived({})
    run(bucket, database, spark)
    batch = bucket.dataset("archive").to_table().to_batches()[0]
    first, second = bucket.opened("archive"), bucket.opened("archive")
    bucket.append(first, "archive", [batch], offsets=[("tests", 1)])

    with pytest.raises(ConflictError):
        bucket.append(second, "archive", [batch], offsets=[("tests", 2)])

    files = bucket.place.filesystem().get_file_info(fs.FileSelector(bucket.place.path(bucket.place.table("archive")), recursive=True))
    assert 2 == len([info for info in files if info.path.endswith(".parquet")])


def test_an_object_store_that_is_away_has_the_exit_code_of_what_is_unreachable(
    database: Database, spark: SparkSession, unused_tcp_port: int
) -> None:
    """In one sentence, without its keys."""
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{unused_tcp_port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": HIDDEN,
        "AWS_ALLOW_HTTP": "true",
    }

    with pytest.raises(UnreachableError, match="object store") as refused:
        run(Lake("s3://lake/x", {**options, "max_retries": "0", "AWS_REGION": "us-east-1"}), database, spark)

    assert HIDDEN not in str(refused.value)


def test_large_bodies_pass_in_little_memory(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """Twenty of ten megabytes in one file, each as it was."""
    archived(*({"body": bytes([number]) * (10 << 20), "content": f'"{"x" * number * 500_000}"'} for number in range(20)))

    exported()

    assert in_postgres(database_url) == in_lake(lake)


def test_nothing_secret_is_in_the_lake(three: Lake, database_url: str) -> None:
    """Neither in its log nor in its files."""
    password = str(conninfo_to_dict(database_url)["password"]).encode()

    assert password
    assert [] == [path for path in Path(three.place.url).rglob("*") if path.is_file() and password in path.read_bytes()]
