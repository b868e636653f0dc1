"""What other programs see in a lake with a history: each reader has every row and type of PostgreSQL's archive, and no row twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pytest

from relay.pipeline.compact import job as compact
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.source.database import Database
from tests.support.lake.adding import NOON, AddAgain
from tests.support.lake.contents import AS_TEXT, rows_of
from tests.support.lake.exporting import export as export_here
from tests.support.lake.hostile import HOSTILE
from tests.support.lake.readers import Rows, Seen, delta_spark, run_reader, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

Words = dict[pa.DataType, str]
"""A reader's own names of the lake's types."""
TYPES = (pa.int64(), pa.int32(), pa.string(), pa.binary(), pa.timestamp("us", "UTC"), pa.date32())
ARROW: Words = {kind: str(kind) for kind in TYPES}
DUCKDB: Words = dict(zip(TYPES, ("BIGINT", "INTEGER", "VARCHAR", "BLOB", "TIMESTAMP WITH TIME ZONE", "DATE"), strict=True))
POLARS: Words = dict(zip(TYPES, ("Int64", "Int32", "String", "Binary", "Datetime(time_unit='us', time_zone='UTC')", "Date"), strict=True))
SPARK: Words = dict(zip(TYPES, ("bigint", "int", "string", "binary", "timestamp", "date"), strict=True))
HERE = Path(__file__).parent
EXPECTED = AS_TEXT.replace("FROM queue_message_archive", ", tenant FROM queue_message_archive")


@pytest.fixture
def aged(
    archived: Archived, exported: Callable[..., export.Exported], lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> Lake:
    """Hostile rows in three exports, compacted; a column that came later; a row that `--again` added; a file of a killed export."""
    archived(*HOSTILE)
    exported()
    archived({}, {"archived_at": NOON + timedelta(days=1)})
    export_here(lake, database)
    assert compact.run(lake=lake, database=database, say=lambda _: None).days
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE queue_message_archive ADD tenant int8")
    archived({"tenant": 2**63 - 1})
    exported()
    archived({"archived_xid": "3", "routing_key": "below every offset"})
    assert 1 == add_again(NOON.date()).added
    file = Path(lake.opened("archive").file_uris()[0])
    shutil.copy(file, file.with_name(f"killed-{file.name}"))
    return lake


def by_delta_rs(lake: Lake) -> Seen:
    """What the pipeline reads by."""
    table = lake.dataset("archive").to_table()
    return Seen({field.name: str(field.type) for field in table.schema}, rows_of(table))


def by_duckdb_through_arrow(lake: Lake) -> Seen:
    """DuckDB's SQL on the data set; its time zone is not UTC."""
    found = lake.dataset("archive")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Kolkata'")
    connection.register("found", found)
    types = {name: kind for name, kind, *_ in connection.execute("DESCRIBE found").fetchall()}
    return Seen(types, rows_of(connection.sql("FROM found").to_arrow_table()))


def by_polars(lake: Lake) -> Seen:
    """Polars' own Delta reader."""
    found = pl.scan_delta(lake.place.table("archive")).collect()
    return Seen({name: str(kind) for name, kind in found.schema.items()}, rows_of(found.to_arrow()))


@pytest.mark.spark
def test_readers_see_every_row_and_type(aged: Lake, database_url: str) -> None:
    """Also after a compaction and `export --again`; times are instants, and no file that the table lacks is read."""
    check(by_delta_rs(aged), ARROW, aged, database_url)
    check(by_duckdb_through_arrow(aged), DUCKDB, aged, database_url)
    check(by_polars(aged), POLARS, aged, database_url)


@pytest.mark.spark
def test_parquet_alone_sees_what_the_table_has_not(many_files: None, lake: Lake, database: Database, spark: SparkSession) -> None:
    """Files that a compaction replaced, as those of killed exports: a reader must know Delta, or be given the table's files."""
    compact.run(lake=lake, database=database, say=lambda _: None)

    assert 9 == lake.dataframe(spark, "archive").count()
    assert 18 == spark.read.parquet(f"{lake.place.table('archive')}/day=*/*.parquet").count()


@pytest.mark.spark
def test_readers_with_an_environment_of_their_own_see_every_row_and_type(aged: Lake, database_url: str, tmp_path: Path) -> None:
    """DuckDB's extension for Delta, in SQL alone, and the table format's own engine."""
    table = aged.place.table("archive")
    check(told(run_reader("python", HERE / "read_by_duckdb.py", table, home=tmp_path)), DUCKDB, aged, database_url)

    settings = delta_spark(tmp_path)
    printed = run_reader("python", HERE / "read_by_delta_spark.py", f"delta.`{table}`", home=tmp_path, settings=settings)
    check(told(printed), SPARK, aged, database_url)


def check(seen: Seen, words: Words, lake: Lake, url: str) -> None:
    """Hold what a reader sees against PostgreSQL's rows, and against the types of the table's log in the reader's words."""
    assert expected(url) == seen.rows
    assert {field.name: words[field.type] for field in schema_of(lake.opened("archive"))} == seen.types


def expected(url: str) -> Rows:
    """Every row of the archive as PostgreSQL prints it."""
    with psycopg.connect(url) as connection:
        return connection.execute(EXPECTED.encode()).fetchall()
