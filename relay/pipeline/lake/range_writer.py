"""Reads one share of the archive by ADBC, cut by cut, and writes it to files of the lake; runs in Spark's tasks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import PipelineError
from relay.pipeline.lake.already_exported import AlreadyExported
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_writer import DataFile, DayWriter
from relay.pipeline.source import adbc
from relay.pipeline.source.columns import DAY
from relay.pipeline.source.ranges import RowRange
from relay.pipeline.spark.tasks import Read

RESULT = pa.schema([
    ("path", pa.string()), ("day", pa.date32()), ("size", pa.int64()), ("rows", pa.int64()), ("stats", pa.string()),
    ("known", pa.int64()), ("differing", pa.int64()),
])  # fmt: skip
"""The result of a task: a row for each file, and a last row with the number of rows that the lake already had."""
RESULT_DDL = "path string, day date, size long, rows long, stats string, known long, differing long"


@dataclass(frozen=True)
class Reading:
    """Everything that a task needs, small and picklable. The password and the statement are left out of `repr`.

    Args:
        conninfo: a complete connection string, with the password.
        check: statement that returns system identifier, timeline, database and safe bound of the server.
        expected: what `check` must return; the bound may be higher.
        select: statement of a cut with `@low@`, `@high@`, `@part@` and `@parts@`.
        name: beginning of the names of the files of this batch.
        shares: what each task reads. Each cut is read by a statement of its own, so no snapshot is held during a whole file.
        known: finds rows that the lake already has; None if it cannot have any of them.
        full: bytes of a full file.
    """

    conninfo: str = field(repr=False)
    check: str
    expected: tuple[str, int, str, int]
    select: str = field(repr=False)
    place: LakeLocation
    table: str
    schema: pa.Schema
    name: str
    shares: tuple[tuple[RowRange, ...], ...]
    known: AlreadyExported | None
    full: int


def task(reading: Reading) -> Read:
    """The function that a task calls with the number of a share."""

    def copy(number: int) -> Iterator[pa.RecordBatch]:
        yield _copy(reading, number)

    return copy


def _copy(reading: Reading, number: int) -> pa.RecordBatch:
    """Copy a share, and return a row for each new file."""
    # Spark may run a share twice at once (speculation, an executor that was only thought lost): neither run may delete the other's files.
    writer = DayWriter(reading.place, reading.table, reading.schema, f"{reading.name}-{number}-{uuid.uuid4()}", full=reading.full)
    known = differing = 0
    try:
        for batch in _rows(reading, reading.shares[number]):
            found = batch if reading.known is None else reading.known.without(reading.place, batch)
            if reading.known is not None:
                known, differing = known + batch.num_rows - found.num_rows, differing + reading.known.differing
            writer.write(found)
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    return _result(files, known, differing)


def _result(files: Iterable[DataFile], known: int, differing: int) -> pa.RecordBatch:
    nothing = dict.fromkeys(RESULT.names)
    return pa.RecordBatch.from_pylist([*map(asdict, files), {**nothing, "known": known, "differing": differing}], schema=RESULT)


def _rows(reading: Reading, share: Iterable[RowRange]) -> Iterator[pa.RecordBatch]:
    """The rows of a share in the table's schema; refuses a server other than the one on which the cuts were planned."""
    with adbc.connected(reading.conninfo) as connection:
        _check(connection.one(reading.check), reading)
        for cut in share:
            for batch in connection.batches(statement(reading.select, cut)):
                yield complete(batch, reading.schema)


def statement(select: str, cut: RowRange) -> str:
    """The statement with the bounds of one cut."""
    for name, value in asdict(cut).items():
        select = select.replace(f"@{name}@", str(int(value)))
    return select


def _check(found: Sequence[Any], reading: Reading) -> None:
    """Refuse another server than the driver's: several servers may be reachable under one name."""
    if tuple(found[:3]) != reading.expected[:3] or found[3] < reading.expected[3]:
        raise PipelineError(
            "Another server answered than the one that this export began with, or it is behind: "
            "name a single server in RELAY_PIPELINE_DATABASE_URL and run this again."
        )


def complete(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the table's schema: with its day, and nulls for columns that the archive no longer has."""

    def column(field: pa.Field) -> Any:
        if field.name == DAY.name:
            return pc.cast(batch.column("archived_at"), DAY.type)
        return batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
