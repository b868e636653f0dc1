"""Scans all files below the archive's folder: finds the files with contents of chosen messages, and further messages that these lead to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from relay.pipeline.erase.archive_check import ArchiveCheck
from relay.pipeline.erase.chosen import ChosenMessages
from relay.pipeline.erase.scan import FileScan, FolderFile, Scanner, files_below
from relay.pipeline.id_places import IdPlaces
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.source.columns import TABLE
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

_COMPACT = "`relay pipeline compact` removes such files once they are 168 hours old"


@dataclass(frozen=True)
class Look:
    """The result of a scan: `scanned` counts all files; `files` has the unreadable files and the files with contents of chosen messages.

    `places` has the places of the table's messages with a chosen id.
    """

    scanned: int = 0
    files: Mapping[FolderFile, FileScan] = field(default_factory=dict)
    places: IdPlaces = field(default_factory=IdPlaces)

    @property
    def current(self) -> list[LoggedFile]:
        """The files of the table with contents of chosen messages, in the order of their days."""
        return sorted((file.logged for file in self.files if file.logged), key=lambda file: file.path)

    @property
    def outside(self) -> list[str]:
        """The paths of files outside the table with contents of chosen messages."""
        return [file.path for file, scan in self.files.items() if not file.logged and scan.readable]

    @property
    def unreadable(self) -> list[str]:
        """The paths of other files that cannot be read."""
        return [file.path for file, scan in self.files.items() if not scan.readable]

    def rows(self, file: LoggedFile) -> int:
        """How many chosen messages with contents a file of the table has."""
        return self.files[FolderFile(file.path, file)].rows

    def deletable(self, removed: Collection[str]) -> list[str]:
        """The paths of files outside the table that a commit has removed from it."""
        return sorted(file.path for file in self.files if not file.logged and file.path in removed)

    def without(self, path: str) -> Look:
        """The same result without a file that was deleted."""
        return replace(self, scanned=self.scanned - 1, files={file: scan for file, scan in self.files.items() if file.path != path})

    def sentence(self) -> str | None:
        """What to do about files that have or may have such contents; None if there is no such file."""
        if current := self.current:
            found = f"{many(len(current), 'file')} of the table still {_have(len(current))}"
            return f"{found}, because another job wrote meanwhile: run this again."
        if not self.files:
            return None
        parts = [f"{many(len(self.outside), 'file')} outside the table still {_have(len(self.outside))}"] if self.outside else []
        if self.unreadable:
            parts.append(f"{many(len(self.unreadable), 'file')} outside the table cannot be read, and may have them")
        return f"{', and '.join(parts)}: {_COMPACT}."


def _have(files: int) -> str:
    return "has such contents" if files == 1 else "have such contents"


@dataclass
class Looker:
    """Scans the current lake. Each scan adds to `chosen` the messages to which the chosen messages lead."""

    lake: Lake
    carrier: Carrier
    archive: ArchiveCheck
    say: Callable[[str], None]
    chosen: ChosenMessages

    def look(self) -> Look:
        """Scan all files, and repeat the scan until it leads to no more messages.

        Raises:
            DamagedError: a file of the table is missing or damaged.
            LakeError, UnreachableError: the lake cannot be read.
            PipelineError: PostgreSQL refused a statement, or Spark failed.
        """
        handle = self.lake.opened(TABLE)
        check = FooterCheck(self.lake.place, schema_of(handle))
        there = files_below(check, {file.path: file for file in files(handle)})
        while True:
            self.say(f"scanning {many(len(there), 'file')}")
            scans = dict(zip(there, self.carrier.each(Scanner(check, self.chosen), there), strict=True))
            chosen = self.archive.follow(self.chosen.following(chain.from_iterable(scan.leads for scan in scans.values())))
            if chosen == self.chosen:
                return _look(scans)
            self.chosen = chosen

    def refuse(self, look: Look) -> None:
        """Raise PipelineError if several messages have one of the ids, or if PostgreSQL still has contents of a chosen message."""
        self.archive.refuse(look.places)


def _look(scans: Mapping[FolderFile, FileScan]) -> Look:
    places = IdPlaces()
    for file, scan in scans.items():
        if file.logged:
            places.update(scan.places)
    return Look(len(scans), {file: scan for file, scan in scans.items() if scan.rows or not scan.readable}, places)
