"""What other programs see in a lake with a history: each reader has every row and type of PostgreSQL's archive, and no row twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pytest

from relay.pipeline.compact import job as compact
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.metrics import job as metrics
from relay.pipeline.source.database import Database
from tests.support.lake.adding import NOON, AddAgain
from tests.support.lake.contents import AS_TEXT, IDENTITY, rows_of
from tests.support.lake.exporting import export as export_here
from tests.support.lake.hostile import HOSTILE
from tests.support.lake.readers import Rows, Seen, delta_spark, run_reader, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

Words = dict[pa.DataType, str]
"""A reader's own names of the lake's types."""
HISTOGRAM = pa.list_(pa.field("element", pa.int64()))
TYPES = (pa.int64(), pa.int32(), pa.string(), pa.binary(), pa.timestamp("us", "UTC"), pa.date32(), HISTOGRAM)
ARROW: Words = {kind: str(kind) for kind in TYPES}
DUCKDB: Words = dict(zip(TYPES, ("BIGINT", "INTEGER", "VARCHAR", "BLOB", "TIMESTAMP WITH TIME ZONE", "DATE", "BIGINT[]"), strict=True))
POLARS: Words = dict(
    zip(TYPES, ("Int64", "Int32", "String", "Binary", "Datetime(time_unit='us', time_zone='UTC')", "Date", "List(Int64)"), strict=True)
)
SPARK: Words = dict(zip(TYPES, ("bigint", "int", "string", "binary", "timestamp", "date", "array<bigint>"), strict=True))
HERE = Path(__file__).parent


class Table(NamedTuple):
    """A table of the lake, and its rows as PostgreSQL prints them."""

    name: str
    order: tuple[str, ...]
    statement: str


ARCHIVE = Table("archive", IDENTITY, AS_TEXT.replace("FROM queue_message_archive", ", tenant FROM queue_message_archive"))
NUMBERS = [
    Table(
        f"stats_{grain}",
        ("start", "exchange", "routing_key"),
        f"""
        SELECT (extract(epoch FROM start) * 1000000)::bigint, exchange, routing_key, published, discarded, rejected, failed, lock_expired,
            attempts, codes::text, wait, publish, confirm, within_target, target_ms, (start AT TIME ZONE 'UTC')::date::text
        FROM queue_message_stats_{grain} ORDER BY start, exchange COLLATE "C", routing_key COLLATE "C"
        """,
    )
    for grain in metrics.SPANS
]


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


@pytest.fixture
def counted(aged: Lake, database: Database, spark: SparkSession) -> Lake:
    """The same lake with the numbers of its messages."""
    assert metrics.run(lake=aged, database=database, spark=lambda: spark, say=lambda _: None).windows
    return aged


def by_delta_rs(lake: Lake, table: Table) -> Seen:
    """What the pipeline reads by."""
    found = lake.dataset(table.name).to_table()
    return Seen({field.name: str(field.type) for field in found.schema}, rows_of(found, table.order))


def by_duckdb_through_arrow(lake: Lake, table: Table) -> Seen:
    """DuckDB's SQL on the data set; its time zone is not UTC."""
    found = lake.dataset(table.name)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Kolkata'")
    connection.register("found", found)
    types = {name: kind for name, kind, *_ in connection.execute("DESCRIBE found").fetchall()}
    return Seen(types, rows_of(connection.sql("FROM found").to_arrow_table(), table.order))


def by_polars(lake: Lake, table: Table) -> Seen:
    """Polars' own Delta reader."""
    found = pl.scan_delta(lake.place.table(table.name)).collect()
    return Seen({name: str(kind) for name, kind in found.schema.items()}, rows_of(found.to_arrow(), table.order))


def by_duckdb_alone(lake: Lake, table: Table, home: Path) -> Seen:
    """DuckDB's extension for Delta, in SQL alone."""
    return told(run_reader("python", HERE / "read_by_duckdb.py", lake.place.table(table.name), ", ".join(table.order), home=home))


def by_delta_spark(lake: Lake, table: Table, home: Path) -> Seen:
    """The table format's own engine."""
    words = (HERE / "read_by_delta_spark.py", f"delta.`{lake.place.table(table.name)}`", ", ".join(table.order))
    return told(run_reader("python", *words, home=home, settings=delta_spark(home)))


@pytest.mark.spark
def test_readers_see_every_row_and_type(counted: Lake, database_url: str) -> None:
    """Also after a compaction and `export --again`; times are instants, and no file that the table lacks is read."""
    for table in (ARCHIVE, *NUMBERS):
        check(by_delta_rs(counted, table), ARROW, counted, table, database_url)
        check(by_duckdb_through_arrow(counted, table), DUCKDB, counted, table, database_url)
        check(by_polars(counted, table), POLARS, counted, table, database_url)


@pytest.mark.spark
def test_parquet_alone_sees_what_the_table_has_not(many_files: None, lake: Lake, database: Database, spark: SparkSession) -> None:
    """Files that a compaction replaced, as those of killed exports: a reader must know Delta, or be given the table's files."""
    compact.run(lake=lake, database=database, say=lambda _: None)

    assert 9 == lake.dataframe(spark, "archive").count()
    assert 18 == spark.read.parquet(f"{lake.place.table('archive')}/day=*/*.parquet").count()


@pytest.mark.spark
@pytest.mark.parametrize("table", [ARCHIVE, NUMBERS[1]], ids=["archive", "numbers"])
def test_readers_with_an_environment_of_their_own_see_every_row_and_type(
    counted: Lake, table: Table, database_url: str, tmp_path: Path
) -> None:
    """The three tables of numbers have the same columns, so one is enough."""
    check(by_duckdb_alone(counted, table, tmp_path), DUCKDB, counted, table, database_url)
    check(by_delta_spark(counted, table, tmp_path), SPARK, counted, table, database_url)


def check(seen: Seen, words: Words, lake: Lake, table: Table, url: str) -> None:
    """Hold what a reader sees against PostgreSQL's rows, and against the types of the table's log in the reader's words."""
    assert expected(url, table) == seen.rows
    assert {field.name: words[field.type] for field in schema_of(lake.opened(table.name))} == seen.types


def expected(url: str, table: Table) -> Rows:
    """Every row of the table as PostgreSQL prints it."""
    with psycopg.connect(url) as connection:
        return connection.execute(table.statement.encode()).fetchall()
