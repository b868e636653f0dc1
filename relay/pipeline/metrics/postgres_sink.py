"""Writes the numbers to PostgreSQL, for dashboards that only know SQL: in bulk, and only rows that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import PipelineError
from relay.pipeline.metrics import aggregate
from relay.pipeline.source.database import Database

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""Characters with a special meaning in the text format of COPY; the backslash must be replaced first."""
_BLOCK = 8192
LOCK_WAIT_MS = 30_000
"""How long a run waits for another run. Each run locks the numbers for a few seconds, while it writes to PostgreSQL and the lake."""


def messages_by_day(database: Database) -> dict[date, int]:
    """How many messages the numbers of each day count in PostgreSQL; raises the same errors as `Database.fetch`."""
    return dict(database.fetch("count_stats"))


@contextmanager
def replacing(database: Database, days: Iterable[date], numbers: Mapping[str, pa.Table]) -> Iterator[int]:
    """Replace the days' numbers, given by grain, in one transaction that ends with the block; yield how many windows were written.

    Rows that are already correct are not touched. Raises the same errors as `Database.connection`, and PipelineError if another session
    keeps the numbers locked. Any error in the block undoes all changes.
    """
    with database.connection() as connection, connection.transaction():
        connection.execute(database.statement("limit_lock_wait"), {"milliseconds": LOCK_WAIT_MS})
        _lock(database, connection)
        written = {grain: _replace(database, connection, sorted(days), grain, rows) for grain, rows in numbers.items()}
        yield written["window"]


def _lock(database: Database, connection: psycopg.Connection[Any]) -> None:
    try:
        connection.execute(database.statement("lock_stats"))
    except psycopg.errors.LockNotAvailable as error:
        raise PipelineError(
            f"Another session kept queue_message_stats_day locked for {LOCK_WAIT_MS / 1000:g} s, a run of the metrics or a transaction "
            "that was left open (pg_locks says whose): nothing was written; run this again when it has ended."
        ) from error


def _replace(database: Database, connection: psycopg.Connection[Any], days: list[date], grain: str, numbers: pa.Table) -> int:
    def statement(name: str) -> bytes:
        return database.statement(name).replace(b"@grain@", grain.encode())

    connection.execute(statement("stage_stats"))
    with connection.cursor() as cursor, cursor.copy(statement("copy_stats")) as copy:
        for block in as_copy(numbers):
            copy.write(block)
    values = {"days": days, "first": days[0], "last": days[-1]}
    deleted = connection.execute(statement("delete_stats"), values).rowcount
    connection.execute(statement("drop_same_stats"))
    return deleted + connection.execute(statement("write_stats")).rowcount


def as_copy(numbers: pa.Table) -> Iterator[bytes]:
    """The numbers in the text format of COPY, block by block."""
    for batch in numbers.select(aggregate.SCHEMA.names).to_batches(max_chunksize=_BLOCK):
        lines = pc.binary_join_element_wise(*map(_texts, batch.columns), "\t")
        yield "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        texts = pa.ListArray.from_arrays(column.offsets, column.values.cast(pa.string()))
        return pc.binary_join_element_wise("{", pc.binary_join(texts, ","), "}", "")
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column.cast(pa.timestamp("s", tz="UTC")), "%Y-%m-%d %H:%M:%S+00")
    texts = column.cast(pa.string())
    for character, escape in _ESCAPES if pa.types.is_string(column.type) else ():
        texts = pc.replace_substring(texts, character, escape)
    return texts
