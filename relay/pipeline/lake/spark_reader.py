"""Reads the lake's tables in Spark without a connector's jars: the files that the log names, pruned by day, with the table's schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from relay.pipeline.lake.data_files import rows_of
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import opened_file
from relay.pipeline.source.columns import DAY
from relay.pipeline.spark.tasks import Read, by_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 16_384
_PATTERN = r"[{}\[\]*?\\]"
"""Characters that Spark reads as a pattern of paths. They are escaped; otherwise Spark could also read a copy next to the lake."""


def dataframe(spark: SparkSession, place: LakeLocation, schema: pa.Schema, root: str, paths: Sequence[str]) -> DataFrame:
    """The files below a table's root as one DataFrame.

    Spark's own reader reads from folders, Arrow in Spark's tasks reads from object stores.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark only where it is used

    columns = from_arrow_schema(schema)
    if not paths:
        return spark.createDataFrame([], columns)
    if place.is_local:
        _check_empty(place, [f"{root}/{path}" for path in paths])
        literal = [re.sub(_PATTERN, r"\\\g<0>", f"{root}/{path}") for path in paths]
        return spark.read.schema(columns).option("basePath", root).parquet(*literal).select(*schema.names)
    full = [f"{root}/{path}" for path in paths]
    return by_number(spark, len(full), _reader(place, full, schema), columns)


def _check_empty(place: LakeLocation, paths: Iterable[str]) -> None:
    """Raise DamagedError for an empty file: Spark would read it as a file without rows."""
    for path in paths:
        if (file := Path(path)).is_file() and not file.stat().st_size:
            with opened_file(place, path):
                pass


def check_named(place: LakeLocation, table: str, said: str) -> None:
    """Read in this process the files of a table that an error of Spark's own reader names.

    Raises:
        DamagedError: one of the files is damaged.
        LakeError: this process cannot read one of them either.
    """
    root = re.escape(place.path(place.table(table)))
    for path in sorted(set(re.findall(rf"{root}/(\S+?\.parquet)", unquote(said)))):
        rows_of(place, table, path)


def _reader(place: LakeLocation, paths: Sequence[str], schema: pa.Schema) -> Read:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield from _rows(place, paths[number], schema)

    return read


def _rows(place: LakeLocation, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with opened_file(place, path) as file:
        for batch in file.batches(_ROWS, columns=schema.names):
            yield _completed(batch, path, schema)


def _completed(batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the table's schema: the day comes from the path, and a column that is newer than the file is null."""
    day = path.rpartition(f"{DAY.name}=")[2].partition("/")[0]

    def column(field: pa.Field) -> Any:
        if field.name == DAY.name:
            return pa.repeat(pa.scalar(day).cast(DAY.type), batch.num_rows)
        return batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
