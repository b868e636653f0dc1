"""Finds files of the archive's table that are missing, have another size than they were written with, or cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relay.errors import DamagedError, LakeError, PipelineError
from relay.pipeline.lake.data_files import rows_of, sizes
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.source.columns import TABLE
from relay.pipeline.spark.items import Carrier


def lost(there: Iterable[LoggedFile], found: Mapping[str, int]) -> Iterator[tuple[LoggedFile, str]]:
    """Files that are missing or have another size, each with a description; `found` has the sizes of the existing files by path."""
    for file in there:
        if (size := found.get(file.path)) is None:
            yield file, f"the file {file.path} is missing"
        elif size != file.size:
            yield file, f"the file {file.path} has {size:,} bytes of {file.size:,}"


def unreadable(check: FooterCheck, there: Sequence[LoggedFile], carrier: Carrier) -> Iterator[tuple[LoggedFile, str]]:
    """Files that differ from the table's log, each with the reason; every file is read whole, and the checksums of its pages are checked.

    This process reads a file again that a task could not read, because the cause may lie in the task's host.

    Raises:
        UnreachableError: the object store does not answer.
        LakeError: this process cannot reach the file either, so it is not known whether the file is damaged.
        PipelineError: Spark failed, or its tasks cannot read a file that this process can read.
    """
    for file, trouble in zip(there, carrier.each(_Reading(check), there), strict=True):
        if trouble:
            yield file, _confirmed(check, file, trouble)


def of_files(check: FooterCheck, there: Iterable[LoggedFile], carrier: Carrier) -> dict[LoggedFile, str]:
    """The lost and damaged files among these, each with a description; raises the same errors as `sizes` and `unreadable`."""
    there = list(there)
    wrong = dict(lost(there, sizes(check.place, TABLE))) if there else {}
    return wrong | dict(unreadable(check, [file for file in there if file not in wrong], carrier))


@dataclass(frozen=True)
class _Reading:
    """Reads files. This small object is sent to Spark's tasks."""

    check: FooterCheck

    def __call__(self, file: LoggedFile) -> str | None:
        """Why this process could not read the file as the table's log describes it; None if it could."""
        try:
            return _flaw(self.check, file)
        except LakeError as error:
            return str(error)


def _flaw(check: FooterCheck, file: LoggedFile) -> str | None:
    """What is wrong with a file, as a clause made from the error's sentence; None if the file is as the table's log describes it.

    Raises:
        LakeError, UnreachableError: this process cannot reach the file.
    """
    try:
        rows_of(check.place, TABLE, file.path, check.of(file))
    except DamagedError as error:
        words = str(error).removesuffix(".")
        return words[0].lower() + words[1:]
    return None


def _confirmed(check: FooterCheck, file: LoggedFile, trouble: str) -> str:
    """What is wrong with a file that a task could not read; raises the same errors as `unreadable`."""
    if words := _flaw(check, file):
        return words
    raise PipelineError(
        f"The file {file.path} could not be read, and this process then read it well: see that each of Spark's hosts reaches the lake,"
        f" and run this again ({trouble.rstrip('.')})."
    )
