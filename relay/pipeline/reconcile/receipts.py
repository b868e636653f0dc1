"""Reads receipts of consumers as a DataFrame, in Spark's tasks: from PostgreSQL's table, or from files of Parquet, CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, fs
from pyarrow import json as json_lines

from relay.errors import PipelineError
from relay.pipeline.lake.errors import damaged, sentences
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import opened_file
from relay.pipeline.lake.stored_file import StoredFile, stored_file
from relay.pipeline.source.adbc import connected
from relay.pipeline.source.columns import INSTANT
from relay.pipeline.source.database import Database, rendered
from relay.pipeline.spark.tasks import by_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "message_id string, queue string, received_at timestamp"
SCHEMA = pa.schema([("message_id", pa.string()), ("queue", pa.string()), ("received_at", INSTANT)])
FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
"""The format for each ending of a file's name; a text file's name may have an additional .gz."""
RECEIPTS_A_TASK = 500_000
_ROWS = 65_536
_TEXT = {name: pa.string() for name in SCHEMA.names}


def none(spark: SparkSession) -> DataFrame:
    """An empty DataFrame of receipts."""
    return spark.createDataFrame([], DDL)


def of_table(spark: SparkSession, database: Database, *, since: datetime) -> DataFrame | None:
    """Receipts of `queue_message_receipt` since a time; None if there is no such receipt.

    Raises:
        UnreachableError: PostgreSQL does not answer.
        PipelineError: PostgreSQL refused, for example because the login lacks a permission.
    """
    count, first, last = database.one("count_receipts", {"since": since})
    if not count:
        return None
    spans = _spans(first, last, count // RECEIPTS_A_TASK + 1)
    select = rendered("read_receipts", database.schema).decode().replace("%%", "%")
    reading = _Table(database.complete_conninfo("reconcile"), select, tuple(spans))
    return by_number(spark, len(spans), reading.read, DDL, most=database.connections)


def of_files(spark: SparkSession, place: LakeLocation, *, since: datetime) -> DataFrame | None:
    """Receipts since a time in a file, or in all files below a folder; None if there is no such receipt.

    The files' columns are message_id, received_at and, optionally, queue.

    Raises:
        PipelineError: there is no file of a known format.
        UnreachableError: the object store does not answer.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark only where it is used

    paths = _files(place)
    read = by_number(spark, len(paths), _Files(place, tuple(paths)).read, DDL)
    found = read.where(f.col("received_at") >= f.lit(since))
    return None if found.isEmpty() else found


def read_file(place: LakeLocation, path: str) -> Iterator[pa.RecordBatch]:
    """Read and check the receipts of one file.

    Raises:
        DamagedError: the file is missing or cannot be unpacked, or its name ends in .parquet although it is not a Parquet file.
        PipelineError: a receipt has no id, or its time is missing, invalid or without a zone.
    """
    try:
        for batch in _BATCHES[_format(path)](place, path):
            yield _checked(batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise PipelineError(
            f"The receipts in {path} cannot be read: each needs message_id, and received_at with a time zone ({words})."
        ) from error


@dataclass(frozen=True)
class _Table:
    """What tasks need to read the table; no value is ever printed."""

    conninfo: str = field(repr=False)
    select: str = field(repr=False)
    spans: tuple[tuple[int, int], ...]

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        low, high = self.spans[number]
        with connected(self.conninfo) as connection:
            for batch in connection.batches(self.select.replace("@low@", str(low)).replace("@high@", str(high))):
                yield batch.cast(SCHEMA)


@dataclass(frozen=True)
class _Files:
    """What tasks need to read files."""

    place: LakeLocation
    paths: tuple[str, ...]

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        yield from read_file(self.place, self.paths[number])


def _spans(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Spans of time of about equal length, both ends included, that together cover `first` to `last` without a gap."""
    width = (last - first) // count + 1
    return [(low, min(low + width - 1, last)) for low in range(first, last + 1, width)]


def _files(place: LakeLocation) -> list[str]:
    filesystem, path = place.filesystem(), place.path(place.url)
    with sentences(place):
        found = filesystem.get_file_info(path)
        infos = [found] if found.is_file else filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        paths = sorted(info.path for info in infos if info.is_file and _format(info.path))
    if not paths:
        raise PipelineError(f"There are no receipts in {place.url}: it must be a file or a folder of files *{', *'.join(FORMATS)}.")
    return paths


def _format(path: str) -> str:
    return next((kind for end, kind in FORMATS.items() if path.lower().removesuffix(".gz").endswith(end)), "")


def _parquet(place: LakeLocation, path: str) -> Iterator[pa.RecordBatch]:
    with opened_file(place, path) as file:
        yield from file.batches(_ROWS, columns=SCHEMA.names)


def _csv(place: LakeLocation, path: str) -> Iterator[pa.RecordBatch]:
    options = csv.ConvertOptions(column_types=_TEXT, include_columns=SCHEMA.names, include_missing_columns=True)
    with _text(place, path) as stored:
        yield from csv.open_csv(stored, convert_options=options)


def _json(place: LakeLocation, path: str) -> Iterator[pa.RecordBatch]:
    options = json_lines.ParseOptions(explicit_schema=pa.schema(_TEXT), unexpected_field_behavior="ignore")
    with _text(place, path) as stored:
        yield from json_lines.open_json(stored, parse_options=options)


@contextmanager
def _text(place: LakeLocation, path: str) -> Iterator[StoredFile | pa.CompressedInputStream]:
    """Open a text file and unpack it; raises DamagedError if the file is missing or cannot be unpacked.

    The other errors are those of `stored_file`.
    """
    with stored_file(place, path) as stored:
        try:
            yield pa.CompressedInputStream(stored, "gzip") if path.lower().endswith(".gz") else stored
        except OSError as error:
            raise damaged(error, place, path) from error


_BATCHES: dict[str, Callable[[LakeLocation, str], Iterator[pa.RecordBatch]]] = {"parquet": _parquet, "csv": _csv, "json": _json}


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in SCHEMA. Arrow or this function refuses a time that is missing or has no zone."""
    times = batch.column("received_at")
    if pa.types.is_timestamp(times.type) and times.type.tz is None:
        raise pa.ArrowInvalid("the times in received_at have no zone")
    columns: dict[str, Any] = {
        "message_id": pc.utf8_lower(pc.utf8_trim_whitespace(batch.column("message_id").cast(pa.string()))),
        "queue": batch.column("queue").cast(pa.string()) if "queue" in batch.schema.names else pa.nulls(batch.num_rows, pa.string()),
        "received_at": times.cast(INSTANT),
    }
    columns["queue"] = pc.fill_null(columns["queue"], "")
    for name in ("message_id", "received_at"):
        if columns[name].null_count:
            raise pa.ArrowInvalid(f"a receipt has no {name}")
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
