"""Checks the lake and records the result in PostgreSQL, which drops only days that an existing lake still has.

Each check (a look) lists the files of the table's version once. It compares the number of rows that the log names for each day with earlier
looks. It reads the files that are due, in Spark's tasks if they are many. Each file is due once within `lake_reread_days`; its path decides
when, so nothing is stored for a single file.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.lake import damage, epoch
from relay.pipeline.lake.data_files import sizes
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.target_table import linked
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier, Start
from relay.pipeline.text import many

DIFFERS = 5
"""Exit code of a job that found a difference, or damage."""
_DAY = 86_400.0
_PREFIX = "queue_message_archive_"
_LOOKS = 3
"""How many times a look is tried while other jobs change the lake."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LakeLook:
    """The result of a look: how many files the table has, how many of them were read whole, and what is wrong, by partition."""

    files: int
    read: int
    damage: Mapping[str, str]


class LookResult(NamedTuple):
    """The result of a look after a commit: damaged partitions, or why the look failed, with the exit code of the failure."""

    damaged: tuple[str, ...] = ()
    failure: str | None = None
    exit_code: int = 0


class _Look(NamedTuple):
    """What one look has found, the server's time at its beginning, and how many rows of each partition the lake's log names."""

    seen: LakeLook
    began: datetime
    rows: Mapping[str, int]


class _Turn(NamedTuple):
    """When the lake was last seen, the server's time, and within how many days each file is read."""

    seen_at: datetime | None
    now: datetime
    days: int


class _Known(NamedTuple):
    """What PostgreSQL knows of a day from earlier looks: the least number of rows that the lake must have, and whether it is damaged."""

    rows: int
    damaged: bool


def run(lake: Lake, database: Database, say: Say, spark: Start | None = None) -> LakeLook:
    """Look at the lake, and record in PostgreSQL that the lake was seen and which days are damaged.

    Args:
        lake: the lake that the server exports to.
        database: the server.
        say: called with a line about each damaged day.
        spark: returns the session whose tasks read the files if there are many, and starts it if needed. If None, this process reads them.

    Raises:
        PipelineError: this is not the lake that the server exports to; the lake does not count as seen.
        LakeError: the lake cannot be read at all; the lake does not count as seen.
        ConflictError: other jobs changed the lake during each look.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    looker = _Looker(lake, database, Carrier(spark, say, database.connections))
    for _ in range(_LOOKS):
        handle, _ = linked(lake, database)
        try:
            found = looker.look(handle)
            counts = looker.note(handle, found)
        except LakeError as error:
            raise epoch.distrust(database, error) from error
        if counts:
            for partition, words in found.seen.damage.items():
                say(f"{partition} IS DAMAGED in the lake: {words}")
            return found.seen
    raise ConflictError("Other jobs changed the lake while it was looked at: the next run looks at it again.")


def run_afterwards(lake: Lake, database: Database, say: Say, spark: Start | None = None) -> LookResult:
    """Look at the lake after a commit, which is kept in any case. A failure of the look is reported and returned, not raised."""
    try:
        return LookResult(tuple(run(lake, database, say, spark).damage))
    except PipelineError as error:
        say(f"the lake was not seen after the commit: {error}")
        return LookResult(failure=str(error), exit_code=error.exit_code)


def run_behind(guard: CommitGuard, lake: Lake, database: Database, say: Say, spark: Start | None = None) -> LookResult:
    """Do the same as `run_afterwards`, but not after a signal.

    A signal during the look is kept by the guard. The errors are those of `CommitGuard.kept`.
    """
    if not guard.stopped:
        with guard.kept():
            return run_afterwards(lake, database, say, spark)
    return LookResult(failure=str(guard.error), exit_code=guard.exit_code)


def exit_code_of(guard: CommitGuard, look: LookResult, *, differs: bool) -> int:
    """The exit code of a job that ends with a look: a signal's, else 5 if something differs, else that of the first error."""
    if guard.stopped or not differs:
        return guard.exit_code or look.exit_code
    return DIFFERS


@dataclass(frozen=True)
class _Looker:
    """Looks at a lake, if needed several times because other jobs change it.

    A handle sometimes reads the table's log again. Errors of this read become sentences about the lake; errors of Spark's start do not.
    """

    lake: Lake
    database: Database
    carrier: Carrier
    well: set[LoggedFile] = field(default_factory=set)
    """Files that an earlier look has read without an error; later looks do not read them again."""

    def look(self, handle: DeltaTable) -> _Look:
        """Find what is wrong with the version of the table that the handle holds."""
        turn = _Turn._make(self.database.one("read_turn"))
        with sentences(self.lake.place):
            there, lake, schema = files(handle), str(handle.metadata().id), schema_of(handle)
        known = {name: _Known(rows, damaged) for name, rows, damaged in self.database.fetch("list_seen_days", {"lake": lake})}
        rows = Counter[str]()
        for file in there:
            rows[partition_of(file.day)] += file.rows
        wrong = self._lost(there, rows, known)
        chosen = _chosen(turn, there, known, wrong)
        for file, words in self._unreadable(chosen, schema):
            wrong[partition_of(file.day)].append(words)
        found = {name: _sentence(every) for name, every in sorted(wrong.items())}
        return _Look(LakeLook(len(there), len(chosen), found), turn.now, rows)

    def note(self, handle: DeltaTable, found: _Look) -> bool:
        """Record in PostgreSQL what a look has found; return False if other jobs changed the lake meanwhile."""
        with sentences(self.lake.place):
            # No export of this version has written to a lake without an epoch. Such a lake counts as seen only after its next export.
            return epoch.epoch_of(handle) is None or epoch.seen(self.database, handle, found.began, found.rows, found.seen.damage)

    def _lost(self, there: Sequence[LoggedFile], rows: Mapping[str, int], known: Mapping[str, _Known]) -> defaultdict[str, list[str]]:
        """Descriptions of missing files, and of rows that the log no longer names, by partition."""
        wrong = defaultdict[str, list[str]](list)
        for file, words in damage.lost(there, sizes(self.lake.place, TABLE)):
            wrong[partition_of(file.day)].append(words)
        for name, before in known.items():
            if rows[name] < before.rows and name not in wrong:
                wrong[name].append(f"its log names {many(rows[name], 'row')} of {before.rows:,}")
        return wrong

    def _unreadable(self, chosen: Sequence[LoggedFile], schema: pa.Schema) -> list[tuple[LoggedFile, str]]:
        """Read the files that no look has read without an error yet; return the bad ones, each with a description."""
        unread = [file for file in chosen if file not in self.well]
        found = list(damage.unreadable(FooterCheck(self.lake.place, schema), unread, self.carrier))
        self.well.update(set(unread).difference(file for file, _ in found))
        return found


def _chosen(turn: _Turn, there: Sequence[LoggedFile], known: Mapping[str, _Known], wrong: Mapping[str, Any]) -> list[LoggedFile]:
    """The files to read now: those that are due, and all files of days that were damaged, because these may be repaired by now.

    Files of a day that this look already found wrong are left out.
    """
    mended = {name for name, before in known.items() if before.damaged}
    whole = [file for file in there if partition_of(file.day) not in wrong]
    return [file for file in whole if partition_of(file.day) in mended or is_due(file.path, turn.seen_at, turn.now, turn.days * _DAY)]


def is_due(path: str, since: datetime | None, now: datetime, period: float) -> bool:
    """Whether a file has become due since the last look; a file is due once in a `period` of seconds.

    `since` is None before the first look.
    """
    if since is None:
        return False
    turn = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest()) / 2**64 * period
    return (now.timestamp() - turn) // period > (since.timestamp() - turn) // period


def _sentence(words: Sequence[str]) -> str:
    """The first description of what is wrong with a day, and the number of further ones."""
    more = len(words) - 1
    return words[0] + (f", and {more} more like it" if more else "")


def day_of(partition: str) -> date:
    """The day of a damaged partition."""
    return datetime.strptime(partition.removeprefix(_PREFIX), "%Y%m%d").date()  # noqa: DTZ007 - a day has no zone


def partition_of(day: date | None) -> str:
    """The partition in PostgreSQL whose rows are in a day's files. The files also have the day's dead messages."""
    return f"{_PREFIX}{day:%Y%m%d}" if day else TABLE
