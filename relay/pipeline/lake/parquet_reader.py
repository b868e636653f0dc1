"""Opens a Parquet file of the lake, in the same way for every job: an error in the file's bytes is one sentence that names the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from relay.pipeline.lake.errors import decoding
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.stored_file import stored_file

_BYTES = 16 << 20
"""About how many bytes of a file are decoded at a time."""


class OpenedFile:
    """The footer and the rows of a file. `path` is the file's path in the lake's file system.

    Raises:
        DamagedError: bytes cannot be decoded.
        LakeError: this process can no longer read the file.
        UnreachableError: the object store does not answer.
    """

    def __init__(self, place: LakeLocation, path: str, file: pq.ParquetFile) -> None:
        self._place = place
        self.path = path
        self._file = file
        self.metadata: pq.FileMetaData = file.metadata
        self.schema: pa.Schema = file.schema_arrow

    def batches(self, rows: int, *, groups: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of at most `rows` rows and about 16 MB, by default of all row groups and columns.

        Columns that the file does not have are left out.
        """
        there = [name for name in self.schema.names if columns is None or name in columns]
        for group in range(self.metadata.num_row_groups) if groups is None else groups:
            at_once = self._at_once(group, there, rows)
            with decoding(self._place, self.path):
                yield from self._file.iter_batches(at_once, row_groups=[group], columns=there, use_threads=False)

    def _at_once(self, group: int, names: Sequence[str], most: int) -> int:
        """How many rows of a group are decoded at a time, from their average size: contents and error texts may have megabytes."""
        found = self.metadata.row_group(group)
        columns = (found.column(number) for number in range(found.num_columns))
        size: int = sum(column.total_uncompressed_size for column in columns if column.path_in_schema.partition(".")[0] in names)
        rows: int = found.num_rows
        return max(1, min(most, _BYTES * rows // max(1, size)))


@contextmanager
def opened_file(place: LakeLocation, path: str, *, buffer_size: int = 0, checksums: bool = False) -> Iterator[OpenedFile]:
    """Open a file by its path in the lake's file system.

    Args:
        place: root of the lake, or of other files.
        path: the file's path.
        buffer_size: bytes that are read at a time; 0 reads a whole column of a row group.
        checksums: check the checksums of the pages, if the file was written with checksums.

    Raises:
        DamagedError: the file is missing, or is no longer a Parquet file.
        LakeError: this process lacks the permission to read the file, or cannot read it.
        UnreachableError: the object store does not answer.
    """
    with stored_file(place, path) as stored:
        with decoding(place, path):
            file = pq.ParquetFile(stored, buffer_size=buffer_size, pre_buffer=False, page_checksum_verification=checksums)
            opened = OpenedFile(place, path, file)
        yield opened
