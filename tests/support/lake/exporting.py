"""An export without Spark: this process reads the archive and commits rows and offset, as the real one does. For tests of what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
from psycopg import sql

from relay.pipeline.lake import epoch as link
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import EPOCH, OFFSET, epoch_of, offset_of
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import DAY, TABLE, schema_of, select_list
from relay.pipeline.source.database import Database

Rows = list[dict[str, object]]
"""Rows of the archive by column, for a test to change."""
NEW = "SELECT {} FROM public.queue_message_archive WHERE archived_xid >= {} AND (archived_xid < {} OR {}) ORDER BY archived_xid, seq"


def export(
    lake: Lake, database: Database, change: Callable[[Rows], Rows] | None = None, *, foreign: bool = False, group: int = 1 << 20
) -> int:
    """Append what was archived since the last time; return the transaction below which everything is in the lake.

    `change` spoils the rows on their way; `foreign` takes those with transaction ids of the future along; so many rows are a row `group`.
    """
    columns = database.columns()
    if (handle := lake.open(TABLE)) is None:
        handle = lake.create(TABLE, schema_of(columns), properties=clusters.read(database).properties)
        link.follow(database, handle)
    schema = pa.schema(handle.schema().to_arrow())
    start = offset_of(handle)
    with database.connection() as connection:
        [(end,)] = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchall()
        statement = sql.SQL(NEW).format(select_list(columns), sql.Literal(str(start)), sql.Literal(str(end)), sql.Literal(foreign))
        found = connection.execute(statement).fetchall()
    rows: Rows = [_row([column.name for column in columns], row) for row in found]
    rows = change(rows) if change else rows
    batches = [pa.RecordBatch.from_pylist(rows[start : start + group], schema=schema) for start in range(0, len(rows), group)]
    epoch = link.begin(database, handle, epoch_of(handle))
    lake.append(handle, TABLE, batches, offsets=[(OFFSET, end), (EPOCH, epoch)])
    link.settle(database, lake.opened(TABLE), link.read(database))
    return int(end)


def _row(names: list[str], values: tuple[object, ...]) -> dict[str, object]:
    row = dict(zip(names, values, strict=True))
    at = row["archived_at"]
    assert isinstance(at, datetime)
    return {**row, DAY.name: at.astimezone(UTC).date()}
