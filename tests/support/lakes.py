"""What the lake must hold, asked of PostgreSQL itself, and what is in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relay.pipeline.lake import Lake

AS_TEXT = """
    SELECT xid::text::bigint, seq, id::text, exchange, routing_key, content::text, body, options::text, ordering_key,
        (extract(epoch FROM available_at) * 1000000)::bigint, (extract(epoch FROM expires_at) * 1000000)::bigint,
        (extract(epoch FROM created_at) * 1000000)::bigint, attempts, replay_of::text, result, error_code, error_detail, handled_by,
        (extract(epoch FROM claimed_at) * 1000000)::bigint, (extract(epoch FROM published_at) * 1000000)::bigint,
        (extract(epoch FROM confirmed_at) * 1000000)::bigint, (extract(epoch FROM archived_at) * 1000000)::bigint,
        archived_xid::text::bigint, (archived_at AT TIME ZONE 'UTC')::date::text
    FROM queue_message_archive ORDER BY xid, seq
"""
"""Every row as PostgreSQL prints it; times as microseconds, which no driver can bend."""


def in_postgres(url: str) -> list[tuple[Any, ...]]:
    """Every row of the archive."""
    with psycopg.connect(url) as connection:
        return connection.execute(AS_TEXT).fetchall()


def in_lake(lake: Lake) -> list[tuple[Any, ...]]:
    """Every row of the lake's table, in the same form."""
    return rows_of(lake.dataset("archive").to_table())


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of the archive's columns, in the form of AS_TEXT."""
    table = table.sort_by([("xid", "ascending"), ("seq", "ascending")])
    return list(zip(*(_plain(table[name]).to_pylist() for name in table.column_names), strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return pc.cast(column, pa.int64())
    return pc.cast(column, pa.string()) if pa.types.is_date(column.type) else column


def files_below(lake: Lake) -> set[str]:
    """Every Parquet file in the archive's folder, committed or not."""
    root = Path(lake.place.url, "archive")
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def committed(lake: Lake) -> set[str]:
    """The files that belong to the table; each is read whole."""
    uris = lake.opened("archive").file_uris()
    for uri in uris:
        pq.read_table(uri)
    return {uri.removeprefix(f"{lake.place.url}/archive/") for uri in uris}
