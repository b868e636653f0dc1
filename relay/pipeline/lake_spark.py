"""The lake's tables in Spark without a connector's jars: the log's files, pruned by day, with the table's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from relay.pipeline.archive import DAY
from relay.pipeline.lake_place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 16_384


def dataframe(spark: SparkSession, place: Place, table: str, schema: pa.Schema, uris: Sequence[str]) -> DataFrame:
    """The files as one DataFrame: by Spark's own reader from folders, by Arrow's inside Spark's tasks from object stores."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark only where it is used

    columns = from_arrow_schema(schema)
    if not uris:
        return spark.createDataFrame([], columns)
    if place.is_local:
        return spark.read.schema(columns).option("basePath", place.table(table)).parquet(*uris).select(*schema.names)
    paths = [place.path(uri) for uri in uris]
    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(_reader(place, paths, schema), columns)


def _reader(place: Place, paths: Sequence[str], schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem = place.filesystem()
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            file = pq.ParquetFile(filesystem.open_input_file(paths[number]))
            there = [name for name in file.schema_arrow.names if name in schema.names]
            for batch in file.iter_batches(_ROWS, columns=there):
                yield _completed(batch, paths[number], schema)

    return read


def _completed(batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the table's schema: the day from its path, and nulls where the file is older than a column."""
    day = path.rpartition(f"{DAY.name}=")[2].partition("/")[0]

    def column(field: pa.Field) -> Any:
        if field.name == DAY.name:
            return pa.repeat(pa.scalar(day).cast(DAY.type), batch.num_rows)
        return batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
