"""A look at everything below the archive's folder: which files have contents of chosen messages, and which messages are their replays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from relay.pipeline.erase.archive_check import ArchiveCheck
from relay.pipeline.erase.chosen import ChosenMessages
from relay.pipeline.erase.scan import FileScan, FolderFile, Scanner, files_below
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.source.columns import TABLE
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

_COMPACT = "`relay pipeline compact` removes such files once they are 168 hours old"


@dataclass(frozen=True)
class Look:
    """What each file has that has contents of chosen messages, or cannot be read; `scanned` are all files."""

    scanned: int = 0
    files: Mapping[FolderFile, FileScan] = field(default_factory=dict)

    @property
    def current(self) -> list[LoggedFile]:
        """The files of the table with such contents, in the order of their days."""
        return _in_order(file.logged for file in self.files if file.logged)

    @property
    def found(self) -> list[LoggedFile]:
        """Those of `current` with messages that are chosen only because of another message."""
        return _in_order(file.logged for file, scan in self.files.items() if file.logged and scan.named < scan.rows)

    @property
    def older(self) -> list[str]:
        """The paths of other files with such contents."""
        return [file.path for file, scan in self.files.items() if not file.logged and scan.readable]

    @property
    def unreadable(self) -> list[str]:
        """The paths of other files that cannot be read."""
        return [file.path for file, scan in self.files.items() if not scan.readable]

    def rows(self, file: LoggedFile, *, only_found: bool) -> int:
        """How many chosen messages with contents a file of the table has; or how many that are chosen only because of another one."""
        scan = self.files[FolderFile(file.path, file)]
        return scan.rows - scan.named if only_found else scan.rows

    def deletable(self, removed: Collection[str]) -> list[str]:
        """Those of the other files that have left the table. Files without a named message come first: only the others lead to them."""
        chosen = [(scan.named > 0, file.path) for file, scan in self.files.items() if not file.logged and file.path in removed]
        return [path for _, path in sorted(chosen)]

    def without(self, path: str) -> Look:
        """The same without a file that was deleted."""
        return replace(self, scanned=self.scanned - 1, files={file: scan for file, scan in self.files.items() if file.path != path})

    def sentence(self) -> str | None:
        """What is to be done about files that still have such contents, or may have some; None without such a file."""
        if current := self.current:
            found = f"{many(len(current), 'file')} of the table still {_have(len(current))}"
            return f"{found}, because another job wrote meanwhile: run this again."
        if not self.files:
            return None
        parts = [f"{many(len(self.older), 'file')} that readers no longer see still {_have(len(self.older))}"] if self.older else []
        if self.unreadable:
            parts.append(f"{many(len(self.unreadable), 'file')} that readers do not see cannot be read, and may have them")
        return f"{', and '.join(parts)}: {_COMPACT}."


def _have(files: int) -> str:
    return "has such contents" if files == 1 else "have such contents"


def _in_order(logged: Iterable[LoggedFile]) -> list[LoggedFile]:
    return sorted(logged, key=lambda file: file.path)


@dataclass
class Looker:
    """Looks at the lake as it is now; what is known of replays grows with each look."""

    lake: Lake
    carrier: Carrier
    archive: ArchiveCheck
    say: Callable[[str], None]
    chosen: ChosenMessages

    def look(self) -> Look:
        """Scan all files, as often as the scan finds replays that were not known.

        Old files count too: a message that has lost its key in the table leads to its replays only there.

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
            scans = list(self.carrier.each(Scanner(check, self.chosen), there))
            if not (new := frozenset().union(*(scan.origins for scan in scans))):
                break
            self.chosen = self.chosen.with_origins(new | self.archive.replays(new))
        found = {file: scan for file, scan in zip(there, scans, strict=True) if scan.rows or not scan.readable}
        return Look(len(there), found)

    def refuse(self) -> None:
        """PipelineError if PostgreSQL still has contents of messages that the lake's rows have led to."""
        self.archive.refuse(self.chosen)
