"""Fixtures of the pipeline's tests: a lake in a folder of the test's own, rows in the archive, one Spark session for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.pipeline.export import again
from relay.pipeline.export import job as export
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.session import spark_session
from tests.support.database import archives
from tests.support.lake import exporting
from tests.support.lake.adding import DAY, NOON, AddAgain
from tests.support.servers.object_store import bucket, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bucket", "object_store"]

Archived = Callable[..., list[tuple[int, int]]]
PATIENCE = 400.0
"""Seconds of a test. One that is interrupted within a call to Spark's JVM leaves the connection out of step, so that all later ones fail.
This limit is for what hangs, and not for a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder that time, unless it has its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all: two cores, 1 GB."""
    options = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4", "spark.default.parallelism": "2"}
    session = spark_session("relay tests", "local[2]", options)
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake in a folder that is not there yet."""
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The test's own database, as its owner."""
    with Database(database_url) as made:
        yield made


@pytest.fixture
def archived(database_url: str) -> Archived:
    """Archive rows in one transaction: `archived({"result": "failed"}, …)`; returns each (xid, seq). See `archives`."""

    def insert(*rows: archives.Row) -> list[tuple[int, int]]:
        with psycopg.connect(database_url) as connection:
            return archives.insert(connection, *rows)

    return insert


@pytest.fixture
def exported(spark: SparkSession, lake: Lake, database: Database) -> Callable[..., export.Exported]:
    """Export what there is into the test's lake: `exported(adopt=True, batch_rows=1, …)`."""

    def run(**options: Any) -> export.Exported:
        sizes = {name: options.pop(name) for name in Sizes.__dataclass_fields__ if name in options}
        return export.run(lake=lake, database=database, spark=lambda: spark, sizes=Sizes(**sizes), **{"say": lambda _: None, **options})

    return run


@pytest.fixture
def add_again(spark: SparkSession, lake: Lake, database: Database) -> AddAgain:
    """Add what the lake lacks of days, and check that a second time adds nothing and finds the same."""

    def run(*days: date, **options: Any) -> again.Added:
        def once() -> again.Added:
            return again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=days or [DAY], **options)

        done, version = once(), lake.opened(TABLE).version()
        second = once()
        assert (0, version) == (second.added, lake.opened(TABLE).version())
        assert [(one.difference, one.findings) for one in done.days] == [(one.difference, one.findings) for one in second.days]
        return done

    return run


@pytest.fixture
def many_files(lake: Lake, database: Database, archived: Archived) -> None:
    """Two days of three files each, with dead messages among them."""
    for _ in range(3):
        archived({"body": b"\x00\xff"}, {"result": "failed"}, {"archived_at": NOON + timedelta(days=1)})
        exporting.export(lake, database)
