"""What is wrong with files of the archive's table: missing, of another size than they were written with, or not to be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relay.errors import LakeError
from relay.pipeline.archive import TABLE
from relay.pipeline.carried import Carrier
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


def unreadable(place: Place, there: Sequence[File], carrier: Carrier) -> Iterator[tuple[File, str]]:
    """Files that have not all their rows, and that in words; each is read whole, with the checksums of its pages.

    Raises:
        UnreachableError: the object store does not answer.
        PipelineError: Spark could not run it.
    """
    for file, words in zip(there, carrier.each(_Reading(place), there), strict=True):
        if words:
            yield file, words


def of_files(place: Place, there: Iterable[File], carrier: Carrier) -> dict[File, str]:
    """All of these files that are lost or damaged, and how; errors as `sizes` and `unreadable`."""
    there = list(there)
    wrong = dict(lost(there, sizes(place, TABLE))) if there else {}
    return wrong | dict(unreadable(place, [file for file in there if file not in wrong], carrier))


@dataclass(frozen=True)
class _Reading:
    """Reads files. Small, and travels to the tasks."""

    place: Place

    def __call__(self, file: File) -> str | None:
        """What is wrong with a file; None where it has all its rows."""
        try:
            rows = rows_of(self.place, TABLE, file.path)
        except LakeError as error:
            return f"the file {file.path} cannot be read: {error}"
        return None if rows == file.rows else f"the file {file.path} has {many(rows, 'row')} of {file.rows:,}"
