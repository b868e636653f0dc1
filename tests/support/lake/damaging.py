"""Damage to a file of the lake, and how its turn to be read comes now."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow.parquet as pq

LONG_AGO = "UPDATE queue_message_export_position SET seen_at = clock_timestamp() - interval '30 days'"
"""Each file's turn has come since."""


def flip(path: Path) -> None:
    """Change the last byte of the first column's values: the header of each page, and the footer, have no checksum."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    first = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    found = bytearray(path.read_bytes())
    found[first + chunk.total_compressed_size - 1] ^= 64
    path.write_bytes(found)


def make_due(url: str) -> None:
    """Let the next look read every file."""
    with psycopg.connect(url) as owner:
        owner.execute(LONG_AGO)
