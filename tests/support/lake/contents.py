"""What the lake must hold, asked of PostgreSQL itself, and what is in its folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relay.pipeline.lake.delta_lake import Lake

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


IDENTITY = ("xid", "seq")
"""Columns of the archive that no two rows have in common."""


def rows_of(table: pa.Table, order: Sequence[str] = IDENTITY) -> list[tuple[Any, ...]]:
    """Rows in the form of AS_TEXT, in the order of these columns."""
    table = table.sort_by([(name, "ascending") for name in order])
    return list(zip(*(_plain(table[name]).to_pylist() for name in table.column_names), strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return pc.cast(column, pa.int64())
    return pc.cast(column, pa.string()) if pa.types.is_date(column.type) else column


_AT_ONCE = 20_000


class Compared(NamedTuple):
    """Rows of the archive, and how many the lake lacks, has more than once or that PostgreSQL does not have, and has otherwise."""

    rows: int
    lost: int
    doubled: int
    different: int


def compare(url: str, lake: Lake) -> Compared:
    """Hold every row of the lake against PostgreSQL's, side by side in the order of identities; in memory is the lake alone, as Arrow."""
    rows = lost = doubled = different = 0
    with psycopg.connect(url) as connection, connection.cursor("every") as cursor:
        cursor.itersize = _AT_ONCE
        cursor.execute(AS_TEXT)
        theirs = _in_order(lake)
        there = next(theirs, None)
        for here in cursor:
            rows += 1
            while there is not None and there[:2] < here[:2]:
                doubled, there = doubled + 1, next(theirs, None)
            if there is None or there[:2] != here[:2]:
                lost += 1
                continue
            different, there = different + (here != there), next(theirs, None)
        return Compared(rows, lost, doubled + (there is not None) + sum(1 for _ in theirs), different)


def _in_order(lake: Lake) -> Iterator[tuple[Any, ...]]:
    """The lake's rows by identity, in the form of AS_TEXT, some at a time."""
    table = lake.dataset("archive").to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    slices = (table.slice(start, _AT_ONCE) for start in range(0, table.num_rows, _AT_ONCE))
    return itertools.chain.from_iterable(map(rows_of, slices))


def strangers(url: str, lake: Lake) -> int:
    """How many identities of the lake PostgreSQL does not have, or the lake more than once; only identities are in memory."""
    ours = lake.dataset("archive").to_table(columns=["xid", "seq"])
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT array_agg(xid::text::bigint), array_agg(seq) FROM queue_message_archive").fetchone()
    xids, seqs = found or ([], [])
    there = pa.table({"xid": pa.array(xids or [], pa.int64()), "seq": pa.array(seqs or [], pa.int64())})
    once = ours.group_by(["xid", "seq"]).aggregate([])
    unknown = once.join(there, keys=["xid", "seq"], join_type="left anti")
    return int(ours.num_rows - once.num_rows + unknown.num_rows)


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
