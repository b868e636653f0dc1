"""Checks files of the lake's tables before they are committed, reads them in batches of rows, and deletes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import fs

from relay.errors import LakeError
from relay.pipeline.lake import footers
from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import OpenedFile, opened_file
from relay.pipeline.lake.parquet_writer import DataFile

FOOTERS_AT_ONCE = 16
"""How many footers are read at a time: an object store answers each request slowly, but many requests in parallel."""
_BUFFER, _ROWS_AT_ONCE = 1 << 20, 8192
"""How many bytes are read, and rows decoded, at a time while a file is read back."""
Look = Callable[[OpenedFile], object]
"""A check of an opened file's footer."""


def check_footers(place: LakeLocation, table: str, schema: pa.Schema, files: Iterable[DataFile]) -> None:
    """Read each file's footer back, several at a time. The table library does not detect wrong types or truncated files.

    Raises:
        LakeError: a file does not have the table's schema, or not as many rows as its writer reported.
    """
    root = place.path(place.table(table))

    def check(file: DataFile) -> None:
        with opened_file(place, f"{root}/{file.path}") as opened:
            words = footers.difference(opened, schema, file.rows, new=True)
        if words:
            raise LakeError(
                f"The file {file.path} of the table {table} is not of its schema ({words}): nothing was committed; run this again."
            )

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        deque(pool.map(check, files), maxlen=0)


def sizes(place: LakeLocation, table: str) -> dict[str, int]:
    """Bytes of every file below a table's root, by its path relative to the root; LakeError or UnreachableError if that cannot be read."""
    filesystem, root = place.filesystem(), place.path(place.table(table))
    with sentences(place):
        found = filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return {info.path.removeprefix(f"{root}/"): info.size for info in found if info.is_file}


@contextmanager
def scanning(place: LakeLocation, table: str, paths: Iterable[str]) -> Iterator[None]:
    """Turn an error of a data set of a table's files into one sentence, as `sentences` does; the sentence names the unreadable file.

    Args:
        place: root of the lake.
        table: the table's name.
        paths: the paths of the files, relative to the table; after an error each file is read whole.

    Raises:
        DamagedError: one of the files is missing or cannot be decoded.
        UnreachableError: the object store does not answer.
        LakeError: anything else.
    """
    try:
        with sentences(place):
            yield
    except LakeError:
        for path in paths:
            rows_of(place, table, path)
        raise


def rows_of(place: LakeLocation, table: str, path: str, check: Look | None = None) -> int:
    """Read a file whole and return how many rows it has; raises the same errors as `batches_of`."""
    return sum(batch.num_rows for batch in batches_of(place, table, path, check))


def batches_of(place: LakeLocation, table: str, path: str, check: Look | None = None) -> Iterator[pa.RecordBatch]:
    """A file's rows in batches. The checksums of pages are checked if the file has any; `check` is called first, and checks the footer.

    Raises:
        DamagedError: the file is missing, or its bytes cannot be decoded, or `check` raises this error.
        LakeError: this process cannot read the file.
        UnreachableError: the object store does not answer.
    """
    with opened_file(place, f"{place.path(place.table(table))}/{path}", buffer_size=_BUFFER, checksums=True) as file:
        if check:
            check(file)
        yield from file.batches(_ROWS_AT_ONCE)


def delete_files(place: LakeLocation, table: str, files: Iterable[DataFile]) -> None:
    """Delete files that were not committed; a file that cannot be deleted stays."""
    filesystem, root = place.filesystem(), place.path(place.table(table))
    for file in files:
        with suppress(OSError):
            filesystem.delete_file(f"{root}/{file.path}")


def delete_removed(place: LakeLocation, table: str, path: str) -> None:
    """Delete a file that a commit has removed from the table; raises LakeError or UnreachableError if the file cannot be deleted."""
    with sentences(place), suppress(FileNotFoundError):
        place.filesystem().delete_file(f"{place.path(place.table(table))}/{path}")


def delete_written(place: LakeLocation, table: str, name: str) -> None:
    """Delete the files that failed writers may have left, found by the beginning of their names; a file that cannot be deleted stays."""
    filesystem, root = place.filesystem(), place.path(place.table(table))
    with suppress(OSError):
        for info in filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True)):
            if info.base_name.startswith(name):
                filesystem.delete_file(info.path)
