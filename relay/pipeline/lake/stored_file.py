"""Opens a file of the lake for a decoder. Errors of the store become sentences here, so every other error is about the file's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from relay.pipeline.lake.errors import damaged, sentences
from relay.pipeline.lake.location import LakeLocation


@contextmanager
def stored_file(place: LakeLocation, path: str) -> Iterator[StoredFile]:
    """Open a file by its path in the lake's file system.

    Raises:
        DamagedError: the file is missing.
        LakeError: this process lacks the permission to read the file, or cannot read it.
        UnreachableError: the object store does not answer.
    """
    with sentences(place):
        try:
            opened = place.filesystem().open_input_file(path)
        except FileNotFoundError as error:
            raise damaged(error, place, path) from error
    with opened:
        yield StoredFile(place, opened)


class StoredFile:
    """A file object with the methods of Python's binary files, which Arrow accepts; raises the same errors as `stored_file`."""

    def __init__(self, place: LakeLocation, opened: pa.NativeFile) -> None:
        self._place = place
        self._opened = opened

    @property
    def closed(self) -> bool:
        """Whether the file was closed."""
        return bool(self._opened.closed)

    def read(self, count: int | None = None) -> bytes:
        """The next bytes, or all that are left."""
        with sentences(self._place):
            return bytes(self._opened.read(count))

    def read_buffer(self, count: int | None = None) -> pa.Buffer:
        """The same as `read`, without a copy; Arrow calls this method if it exists."""
        with sentences(self._place):
            return self._opened.read_buffer(count)

    def seek(self, position: int, whence: int = 0) -> int:
        """Move to a position; with `whence` 1 relative to the current position, with 2 relative to the end."""
        with sentences(self._place):
            return int(self._opened.seek(position, whence))

    def tell(self) -> int:
        """The current position."""
        return int(self._opened.tell())

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._opened.close()
