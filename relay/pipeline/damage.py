"""What is wrong with files of the archive's table: missing, of another size than they were written with, or not to be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from relay.errors import LakeError
from relay.pipeline.archive import TABLE
from relay.pipeline.lake_files import rows_of, sizes
from relay.pipeline.lake_log import File
from relay.pipeline.lake_place import Place
from relay.pipeline.words import many


def lost(there: Iterable[File], found: Mapping[str, int]) -> Iterator[tuple[File, str]]:
    """Files that are missing or of another size, and that in words; `found` has the bytes of those that are there, by path."""
    for file in there:
        if (size := found.get(file.path)) is None:
            yield file, f"the file {file.path} is missing"
        elif size != file.size:
            yield file, f"the file {file.path} has {size:,} bytes of {file.size:,}"


def unreadable(place: Place, file: File) -> str | None:
    """What is wrong with a file, whose pages carry checksums; None where it has all its rows. UnreachableError as `rows_of`."""
    try:
        rows = rows_of(place, TABLE, file.path)
    except LakeError as error:
        return f"the file {file.path} cannot be read: {error}"
    return None if rows == file.rows else f"the file {file.path} has {many(rows, 'row')} of {file.rows:,}"


def of_files(place: Place, there: Iterable[File]) -> dict[File, str]:
    """All of these files that are lost or damaged, and how; each is read whole. LakeError or UnreachableError where nothing can be read."""
    there = list(there)
    wrong = dict(lost(there, sizes(place, TABLE))) if there else {}
    for file in there:
        if file not in wrong and (words := unreadable(place, file)):
            wrong[file] = words
    return wrong
