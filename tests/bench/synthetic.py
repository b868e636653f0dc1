"""Days of a lake that no server ever archived: copies of one exported day, made in Spark's tasks."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.lake.data_files import batches_of
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_writer import DataFile, DayWriter
from relay.pipeline.lake.range_writer import complete
from relay.pipeline.source.columns import TABLE
from relay.pipeline.spark.items import Carrier

FILES = 24
"""Files of a day, as an hourly export leaves them."""
_ROWS = 8_192
_AT_ONCE = 32
"""Days of one commit."""


@dataclass(frozen=True)
class Copier:
    """Writes the rows of some files to the files of an earlier day. Small and picklable."""

    place: LakeLocation
    schema: pa.Schema
    paths: tuple[str, ...]
    rows: int

    def __call__(self, back: int) -> list[DataFile]:
        """Write the day that lies `back` days before; no reader sees its files before they are committed."""
        found: list[DataFile] = []
        batches = self._batches(timedelta(days=back))
        for _ in range(FILES):
            if not (some := list(itertools.islice(batches, -(-self.rows // FILES // _ROWS)))):
                break
            writer = DayWriter(self.place, TABLE, self.schema, f"part-{uuid.uuid4()}")
            for batch in some:
                writer.write(batch)
            found += writer.close()
        return found

    def _batches(self, by: timedelta) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            for batch in batches_of(self.place, TABLE, path):
                yield complete(_moved(batch, by), self.schema)


def _moved(batch: pa.RecordBatch, by: timedelta) -> pa.RecordBatch:
    """The same rows, earlier by so much, with ids of their own."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            columns.append(pc.subtract(column, pa.scalar(by)))
        elif field.name == "id":
            columns.append(pa.array([str(uuid.uuid4()) for _ in range(batch.num_rows)], field.type))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def add_days(lake: Lake, carrier: Carrier, template: date, backs: Sequence[int]) -> int:
    """Add a copy of the day `template` for each number of days before it; return how many rows were added."""
    added = 0
    for first in range(0, len(backs), _AT_ONCE):
        handle = lake.opened(TABLE)
        logged = sorted(file for file in files(handle) if file.day == template)
        copier = Copier(lake.place, schema_of(handle), tuple(file.path for file in logged), sum(file.rows for file in logged))
        written = [file for day in carrier.each(copier, backs[first : first + _AT_ONCE]) for file in day]
        lake.commit(handle, TABLE, written)
        added += sum(file.rows for file in written)
    return added
