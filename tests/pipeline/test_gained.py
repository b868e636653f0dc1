"""Columns that the archive gains with a default, which PostgreSQL shows in older rows: verified all the same, never blindly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
import psycopg
import pytest
from psycopg import sql

from relay.errors import ConflictError
from relay.pipeline.compact import job as compact
from relay.pipeline.export import job as export
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.target_table import prepare
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.database.archives import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

DAY, DEAD = "queue_message_archive_20240501", "queue_message_dead"
Export = Callable[..., export.Exported]
Owner = Callable[..., None]
Verdict = Callable[..., dict[str, str]]
pytestmark = pytest.mark.spark


@pytest.fixture
def owner(database_url: str) -> Owner:
    """Run a statement as the owner, with no trigger in its way."""

    def run(statement: str, *values: object) -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(statement.encode(), values or None)

    return run


@pytest.fixture
def verdict(lake: Lake, database: Database) -> Verdict:
    """Verify everything again; what was found by partition, of those with rows."""

    def run() -> dict[str, str]:
        found = verify.run(lake=lake, database=database, say=lambda _line: None, again=True).partitions
        return {one.partition: one.difference or one.state for one in found if one.rows}

    return run


EQUAL = {DAY: "verified", DEAD: "verified"}
DEFAULTS = {
    "text": "e~u'%s~1\\ \u00e9",
    "char(5)": "eu",
    "boolean": "true",
    "integer": "-7",
    "numeric(10, 3)": "1.500",
    "double precision": "0.1",
    "date": "2024-02-29",
    "timestamptz": "1969-12-31 23:59:59.999999+02",
    "bytea": "\\x00ff7e",
    "jsonb": '{"a": [1, "~"]}',
    "text[]": '{"a b",NULL,"~"}',
    "interval": "1 mon 2 days",
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_days_that_were_exported_before_a_column_with_a_default_stay_equal(
    kind: str, archived: Archived, exported: Export, lake: Lake, owner: Owner, verdict: Verdict
) -> None:
    """Before and after the next export, of every type; rows that arrive with the column are compared in it."""
    archived({}, {"result": "failed"})
    exported()
    statement = sql.SQL("ALTER TABLE queue_message_archive ADD COLUMN region {} DEFAULT {}")
    owner(statement.format(sql.SQL(kind), sql.Literal(DEFAULTS[kind])).as_string(None))

    assert verdict() == EQUAL
    archived({}, {"region": None}, {"result": "failed"})
    exported()

    assert verdict() == EQUAL
    assert [True, True, True, False, False] == sorted(
        (value is None for value in lake.dataset("archive").to_table()["region"].to_pylist()), reverse=True
    )
    owner("UPDATE queue_message_archive SET region = NULL WHERE seq = (SELECT max(seq) FROM queue_message_archive)")
    assert "different in the lake" in verdict()[DEAD]


def test_what_an_older_row_holds_itself_is_a_difference(archived: Archived, exported: Export, owner: Owner, verdict: Verdict) -> None:
    """The lake has no such value, and would be all that is left of it."""
    archived({})
    exported()
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    owner("UPDATE queue_message_archive SET region = 'us'")
    assert "different in the lake" in verdict()[DAY]

    exported()
    assert "different in the lake" in verdict()[DAY]


def test_a_value_that_differs_is_found_in_rows_that_were_exported_with_the_column(
    archived: Archived, exported: Export, owner: Owner, verdict: Verdict
) -> None:
    """The default itself in place of null, and null in place of the default."""
    archived({})
    exported()
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    [_, (_, null), (_, default)] = [*archived({}), *archived({"region": None}), *archived({})]
    exported()
    assert "verified" == verdict()[DAY]

    owner("UPDATE queue_message_archive SET region = 'eu' WHERE seq = %s", null)
    assert f", {null})" in verdict()[DAY]
    owner("UPDATE queue_message_archive SET region = NULL WHERE seq IN (%s, %s)", null, default)
    found = verdict()[DAY]
    assert (False, True) == (f", {null})" in found, f", {default})" in found)


def test_it_holds_over_compaction_a_partition_written_anew_and_rows_of_a_dump(
    archived: Archived, exported: Export, lake: Lake, database: Database, owner: Owner, verdict: Verdict
) -> None:
    """Files and PostgreSQL then know nothing of it any more; the table does."""
    future = 9_000_000_000_000
    archived({}, {"archived_xid": str(future)})
    exported()
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    archived({})
    exported()
    compact.run(lake=lake, database=database, say=lambda _line: None)
    owner(f"VACUUM FULL {DAY}")

    assert "verified" == verdict()[DAY]
    assert 1 == len(lake.opened("archive").file_uris())


def test_every_reader_gets_the_day_with_the_column(
    archived: Archived, exported: Export, lake: Lake, owner: Owner, spark: SparkSession
) -> None:
    """Null in files that are older than it."""
    archived({})
    exported()
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    archived({}, {"region": "us"})
    exported()

    wanted = [None, "eu", "us"]
    assert wanted == lake.dataset("archive").to_table().sort_by("seq")["region"].to_pylist()
    assert wanted == [row.region for row in lake.dataframe(spark, "archive").orderBy("seq").collect()]
    assert wanted == pl.scan_delta(f"{lake.place.url}/archive").sort("seq").collect()["region"].to_list()


def test_a_column_that_was_there_from_the_beginning_has_no_older_rows(
    archived: Archived, exported: Export, owner: Owner, verdict: Verdict
) -> None:
    """The lake got the default with the rows."""
    archived({})
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    exported()
    exported()
    assert "verified" == verdict()[DAY]

    owner("UPDATE queue_message_archive SET region = NULL")
    assert "different in the lake" in verdict()[DAY]


def test_an_export_that_began_before_another_added_a_column_gives_way(
    archived: Archived, exported: Export, lake: Lake, database: Database, database_url: str, owner: Owner, spark: SparkSession
) -> None:
    """It knows nothing of the column, so its rows would have null there."""
    archived({})
    exported()
    columns = database.columns()
    prepared = prepare(lake, lake.opened(TABLE), epoch.read(database), columns, clusters.read(database))
    owner("ALTER TABLE queue_message_archive ADD COLUMN region text DEFAULT 'eu'")
    exported()
    with psycopg.connect(database_url) as connection:
        insert(connection, {})
    late = export._Export(lake, database, lambda: spark, lambda _line: None, clusters.read(database), prepared, Sizes(5_000, 5_000))

    with pytest.raises(ConflictError, match="added a column"):
        late.work()
