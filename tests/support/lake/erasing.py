"""What the tests of erasure share: rows as PostgreSQL erases them, and every byte of the lake's files."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from relay.message import ERASED
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import TABLE
from tests.support.lake.compacting import data_files

MARK = "gone-4711"
"""A text that is in everything that is erased."""
SECRET = {
    "content": f'{{"name": "{MARK}"}}',
    "body": f"body {MARK}".encode(),
    "options": f'{{"headers": {{"x-name": "{MARK}"}}}}',
    "ordering_key": f"key {MARK}",
    "error_detail": f"refused {MARK}",
}
"""A row with it."""


def erase_in_postgres(url: str, where: str = "true") -> None:
    """Erase rows of the archive with the function that `relay erase` calls."""
    with psycopg.connect(url) as owner:
        chosen = owner.execute(
            f"SELECT array_agg(id), array_agg(xid || '/' || seq) FROM public.queue_message_archive WHERE {where}".encode()
        )
        owner.execute(
            "SELECT public.queue_message_erase(part, %s, %s, dry_run => false) FROM public.queue_message_archive_parts() part",
            chosen.fetchone(),
        )


def erased_in(lake: Lake) -> list[int]:
    """The numbers of the table's rows that are erased."""
    rows = lake.dataset(TABLE).to_table(["seq", "options"]).to_pylist()
    return sorted(row["seq"] for row in rows if row["options"] == ERASED)


def files_with(lake: Lake, text: str) -> list[str]:
    """The files below the table's folder that have a text: Parquet files decompressed column by column, the log and others byte by byte."""
    every = [path for path in Path(lake.place.url, TABLE).rglob("*") if path.is_file()]
    data = set(data_files(lake))
    return [path.name for path in every if text.encode() in path.read_bytes() or (path in data and _holds(path, text.encode()))]


def _holds(path: Path, text: bytes) -> bool:
    """Whether a value of any column has the text."""
    table = pq.read_table(path, partitioning=None)
    return any(text in bytes(buffer) for name in table.column_names for buffer in _buffers(table[name].combine_chunks()))


def _buffers(column: pa.Array | pa.ChunkedArray) -> list[pa.Buffer]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None]
