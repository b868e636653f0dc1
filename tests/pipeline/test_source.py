"""One cut as a task copies it, without Spark: what is left of an attempt whose result was not used."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.parquet_writer import FULL, DataFile
from relay.pipeline.lake.range_writer import Reading, task
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import TABLE, fault, schema_of, select_list
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import RowRange
from relay.pipeline.spark.tasks import in_task
from tests.pipeline.conftest import Archived


@pytest.fixture
def reading(lake: Lake, database: Database, archived: Archived) -> Reading:
    """A batch of two rows in one cut, for an empty table."""
    archived({}, {})
    columns, cluster = database.columns(), clusters.read(database)
    lake.create(TABLE, schema_of(columns), properties=cluster.properties)
    select = database.statement("read_cut").decode().replace("%%", "%").replace("@columns@", select_list(columns).as_string(None))
    select = select.replace("@fault@", fault(columns).as_string(None))
    return Reading(
        conninfo=database.complete_conninfo("test"),
        check=database.statement("read_cluster").decode(),
        expected=(cluster.system_identifier, cluster.timeline, cluster.database, cluster.safe),
        select=select,
        place=lake.place,
        table=TABLE,
        schema=schema_of(columns),
        name="part-of-a-test",
        shares=((RowRange(0, cluster.safe),),),
        known=None,
        full=FULL,
    )


def attempt(reading: Reading) -> list[DataFile]:
    """Run the task of the only share as Spark would; the files that it tells of."""
    [told] = in_task(task(reading))([pa.RecordBatch.from_pylist([{"id": 0}])])
    rows: list[dict[str, Any]] = told.select(["path", "day", "size", "rows", "stats"]).to_pylist()
    return [DataFile(**row) for row in rows if row["path"] is not None]


def test_a_second_attempt_that_fails_late_takes_nothing_from_the_first(reading: Reading, lake: Lake) -> None:
    """Spark may run a task twice at once: the files of the one that counts stay as they are when the other's are removed."""
    counts, late = attempt(reading), attempt(reading)
    lake.commit(lake.opened(TABLE), TABLE, counts)

    lake.discard(TABLE, late)

    assert 2 == lake.dataset(TABLE).to_table().num_rows
