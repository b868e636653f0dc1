"""Finds files of the archive's table that are missing, of another size than they were written with, or impossible to decode."""

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
    """Files that are missing or of another size, each with words that say so; `found` has the sizes of the existing files by path."""
    for file in there:
        if (size := found.get(file.path)) is None:
            yield file, f"the file {file.path} is missing"
        elif size != file.size:
            yield file, f"the file {file.path} has {size:,} bytes of {file.size:,}"


def unreadable(check: FooterCheck, there: Sequence[LoggedFile], carrier: Carrier) -> Iterator[tuple[LoggedFile, str]]:
    """Files that are not what the table names, each with words that say why; every file is read whole, with the checksums of its pages.

    This process reads again what a task could not read, because the error may be the task's own.

    Raises:
        UnreachableError: the object store does not answer.
        LakeError: this process cannot reach a file either, which says nothing of its bytes.
        PipelineError: Spark failed, or its tasks cannot read a file that this process can read.
    """
    for file, trouble in zip(there, carrier.each(_Reading(check), there), strict=True):
        if trouble:
            yield file, _confirmed(check, file, trouble)


def of_files(check: FooterCheck, there: Iterable[LoggedFile], carrier: Carrier) -> dict[LoggedFile, str]:
    """Those of the files that are lost or damaged, each with words that say how; errors as `sizes` and `unreadable`."""
    there = list(there)
    wrong = dict(lost(there, sizes(check.place, TABLE))) if there else {}
    return wrong | dict(unreadable(check, [file for file in there if file not in wrong], carrier))


@dataclass(frozen=True)
class _Reading:
    """Reads files. Small, and travels to the tasks."""

    check: FooterCheck

    def __call__(self, file: LoggedFile) -> str | None:
        """Why a file could not be read here as the table names it; None if it could."""
        try:
            return _flaw(self.check, file)
        except LakeError as error:
            return str(error)


def _flaw(check: FooterCheck, file: LoggedFile) -> str | None:
    """What is wrong with a file: the sentence of every reader's error, turned into a clause. None if it is as the table names it.

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
    """What is wrong with a file that a task could not read; errors as `unreadable`."""
    if words := _flaw(check, file):
        return words
    raise PipelineError(
        f"The file {file.path} could not be read, and this process then read it well: see that each of Spark's hosts reaches the lake,"
        f" and run this again ({trouble.rstrip('.')})."
    )
