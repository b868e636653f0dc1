"""A Parquet file of the lake opened for reading, in the same way in every job: an error in its bytes is one sentence that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from relay.pipeline.lake.errors import decoding
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.stored_file import stored_file


class OpenedFile:
    """The footer and the rows of a file, which is named by its path in the lake's file system.

    Raises:
        DamagedError: bytes cannot be decoded.
        LakeError: this process cannot read the file any more.
        UnreachableError: the object store does not answer.
    """

    def __init__(self, place: LakeLocation, path: str, file: pq.ParquetFile) -> None:
        self._place = place
        self.path = path
        self._file = file
        self.metadata: pq.FileMetaData = file.metadata
        self.schema: pa.Schema = file.schema_arrow

    def batches(self, rows: int, *, groups: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """At most `rows` rows at a time, of these row groups and these columns, as far as the file has them; by default of all."""
        there = None if columns is None else [name for name in columns if name in self.schema.names]
        with decoding(self._place, self.path):
            yield from self._file.iter_batches(rows, row_groups=groups, columns=there, use_threads=False)


@contextmanager
def opened_file(place: LakeLocation, path: str, *, buffer_size: int = 0, checksums: bool = False) -> Iterator[OpenedFile]:
    """Open a file by its path in the lake's file system.

    Args:
        place: root of the lake, or of other files.
        path: the file's path.
        buffer_size: bytes that are read at a time; 0 reads a whole column of a row group.
        checksums: compare the checksums of the pages, if the file was written with any.

    Raises:
        DamagedError: the file is missing, or no Parquet file any more.
        LakeError: this process may not, or cannot, read the file.
        UnreachableError: the object store does not answer.
    """
    with stored_file(place, path) as stored:
        with decoding(place, path):
            file = pq.ParquetFile(stored, buffer_size=buffer_size, pre_buffer=False, page_checksum_verification=checksums)
            opened = OpenedFile(place, path, file)
        yield opened
