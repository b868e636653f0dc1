"""Computes the numbers of days that changed in the lake's archive, and writes them to the lake and to PostgreSQL.

A day is computed when its numbers count more or fewer messages than the lake has rows of that day. No job removes a row or changes a
counted column. An open day is therefore computed as long as rows arrive. A closed day is computed once, and again after late rows. Of an
open day only new files are counted, if the windows in the lake certainly count the others. No other state is kept. After a killed run, a
compaction, an erasure or the loss of a statistics table, nothing must be repaired by hand. A run without new rows writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.errors import ConflictError, PipelineError
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files_by_day
from relay.pipeline.lake.splits import Parts
from relay.pipeline.lake.target_table import refuse_foreign
from relay.pipeline.metrics import aggregate, file_choice, lake_sink, lake_state, postgres_sink, transforms
from relay.pipeline.metrics import top_keys as named_keys
from relay.pipeline.metrics.file_choice import CountingTerms, DayTotals, FileChoice
from relay.pipeline.metrics.top_keys import Limits
from relay.pipeline.signals import deferred
from relay.pipeline.source.database import Database
from relay.pipeline.spark.tasks import failure
from relay.pipeline.text import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]

TARGET_MS = 1000
"""The default target in milliseconds: the time from when a message is due until its confirm."""
TOP_KEYS = 20
"""The default number of routing keys that a day names for each exchange."""
TOP_EXCHANGES = 200
"""The default number of exchanges that a day names."""
SPANS = {"window": aggregate.WINDOW_SECONDS, "hour": aggregate.HOUR_SECONDS, "day": aggregate.DAY_SECONDS}
"""Seconds of each grain, in the order of writing. The numbers of days come last, because they decide which days are due."""
_ROWS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Computed:
    """The result of a run: days computed, messages counted, windows written to PostgreSQL, days copied from the lake to PostgreSQL.

    `failure` is why the run was cut short after some days were computed. The numbers of these days are in the lake and in PostgreSQL; the
    other days stay due.
    """

    days: int
    messages: int
    windows: int
    copied_days: int
    first_day: date | None
    last_day: date | None
    archive_version: int | None
    seconds: float
    failure: str | None = None
    exit_code: int = 0


def run(
    *,
    lake: Lake,
    database: Database,
    spark: Callable[[], SparkSession],
    say: Progress,
    target_ms: int = TARGET_MS,
    top_keys: int = TOP_KEYS,
    top_exchanges: int = TOP_EXCHANGES,
    again: Collection[date] = (),
    now: datetime | None = None,
) -> Computed:
    """Compute every day whose rows changed, and as a whole the days of `again`, whose target or names may have changed.

    A day has one target. A run with another target does not change days that it does not compute. `now` replaces PostgreSQL's time.

    Raises:
        PipelineError: Spark, the lake or PostgreSQL refused a request, or the lake is another archive's.
        ConflictError: another run was faster, or a day ended while its new files were counted.
        UnreachableError: PostgreSQL or the object store does not answer.
        KeyboardInterrupt: a signal came; the exception has the signal's number, or no number for SIGINT.

    If one of these errors is raised, no day was computed. An error after the first computed day becomes part of the result instead.
    """
    began = time.monotonic()
    limits = Limits(top_exchanges, top_keys)
    if min(target_ms, *limits) < 1:
        raise PipelineError("Target, number of exchanges and number of routing keys must be at least 1.")
    refuse_foreign(lake, database)
    work = _Work.of(lake, lambda: _today(database, now), again, CountingTerms(target_ms, top_exchanges))
    metrics = _Metrics(lake, database, spark, say, target_ms, limits, work, began)
    metrics.carry_out()
    return metrics.result()


def _today(database: Database, now: datetime | None) -> date:
    today: date
    (today,) = database.one("read_today", {"now": now})
    return today


@dataclass(frozen=True)
class _Work:
    """What to count in one version of the archive; `numbers` has the existing numbers by day, `today` queries PostgreSQL."""

    version: int | None
    today: Callable[[], date]
    counts: Sequence[FileChoice]
    numbers: Mapping[date, DayTotals]

    @classmethod
    def of(cls, lake: Lake, clock: Callable[[], date], again: Collection[date], terms: CountingTerms) -> _Work:
        """Find the days that are due, and the days of `again` for which the archive has rows."""
        today = clock()
        archive = lake.open("archive")
        files = {} if archive is None else files_by_day(archive)
        numbers = lake_sink.numbers_by_day(lake)
        due = [day for day in sorted(files) if day in again or file_choice.is_due(day, files[day], numbers.get(day), today)]
        bases = lake_sink.bases(lake, [day for day in due if day >= today and day in numbers and day not in again])
        counts = [file_choice.choose(day, files[day], bases.get(day), today=today, terms=terms) for day in due]
        return cls(None if archive is None else archive.version(), clock, counts, numbers)

    def groups(self) -> Iterator[list[FileChoice]]:
        """Groups of days that are computed together: days with few rows share a group."""
        group: list[FileChoice] = []
        for count in self.counts:
            if group and sum(one.rows for one in [*group, count]) > _ROWS_AT_ONCE:
                yield group
                group = []
            group.append(count)
        if group:
            yield group

    def closes(self, counts: Iterable[FileChoice], today: date) -> bool:
        """Whether a run counts one of these days for the first time since its end."""
        return any(file_choice.is_early(count.day, self.numbers.get(count.day), today) for count in counts)


@dataclass
class _Metrics:
    """One run in progress."""

    lake: Lake
    database: Database
    spark: Callable[[], SparkSession]
    say: Progress
    target_ms: int
    limits: Limits
    work: _Work
    began: float
    done: list[FileChoice] = field(default_factory=list)
    windows: int = 0
    copied: int = 0
    guard: CommitGuard = field(default_factory=CommitGuard)

    def carry_out(self) -> None:
        """Do the whole run. After the first day, an error or a signal cuts it short, but is not raised."""
        with self.guard.kept():
            self.compute()
            self.copied = _copy(self.lake, self.database, self.say)
            lake_state.record(self.lake, self.database)

    def compute(self) -> None:
        """Compute group after group; a group counts as done when its numbers are in PostgreSQL and in the lake."""
        for counts in self.work.groups():
            self.say(f"{_named(counts)}: {many(sum(count.rows for count in counts), 'message')} to count")
            numbers = _compute(self.lake, counts, self.spark, self.target_ms, self.limits)
            self._write(counts, numbers)

    def _write(self, counts: Sequence[FileChoice], numbers: dict[str, pa.Table]) -> None:
        """Write to PostgreSQL and the lake. The lake's table of days is written last, so after any earlier failure the days stay due."""
        replace = partial(lake_sink.replace, self.lake, days=[count.day for count in counts], archive_version=self.work.version or 0)
        with postgres_sink.replacing(self.database, [count.day for count in counts], numbers) as written:
            today = self.work.today()
            _check_open(counts, today)
            for grain in ("window", "hour"):
                replace(grain, numbers[grain])
        with deferred():
            replace("day", numbers["day"], though_equal=self.work.closes(counts, today))
            self.windows += written
            self.done += counts
            self.guard.committed = True

    def result(self) -> Computed:
        """The summary of what is done."""
        days = [count.day for count in self.done]
        return Computed(
            days=len(days),
            messages=sum(count.rows for count in self.done),
            windows=self.windows,
            copied_days=self.copied,
            first_day=min(days, default=None),
            last_day=max(days, default=None),
            archive_version=self.work.version,
            seconds=round(time.monotonic() - self.began, 3),
            failure=self.guard.failure(
                "job metrics", f"the numbers of {many(len(days), 'day')} are in the lake and in PostgreSQL", say=self.say
            ),
            exit_code=self.guard.exit_code,
        )


def _compute(
    lake: Lake, counts: Sequence[FileChoice], spark: Callable[[], SparkSession], target_ms: int, limits: Limits
) -> dict[str, pa.Table]:
    """Numbers by grain: the counts of the chosen files, added to the windows that count the other files."""
    held = {count.day: count.windows for count in counts if count.windows is not None}
    named = {day: named_keys.of_numbers(windows) for day, windows in held.items()}
    parts = Parts.of(lake.place, "archive", [file for count in counts for file in count.files])
    counted = aggregate.empty()
    if parts.tasks:
        session = spark()
        with _sentences(counts):
            counted = transforms.windows(session, parts, target_ms=target_ms, limits=limits, named=named)
    windows = aggregate.merge(pa.concat_tables([counted, *held.values()]))
    return {grain: windows if grain == "window" else aggregate.merge(windows, seconds=seconds) for grain, seconds in SPANS.items()}


@contextmanager
def _sentences(counts: Sequence[FileChoice]) -> Iterator[None]:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - the JVM is needed only here
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if (known := failure(error)) is not None:
            raise known from error
        words = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise PipelineError(
            f"Spark could not count the messages of {_named(counts)}: see its logs and run this again ({words})."
        ) from error


def _check_open(counts: Iterable[FileChoice], today: date) -> None:
    """Refuse to write a day that was counted in parts and has ended meanwhile: later runs would assume that it was counted as a whole."""
    if over := [count.day for count in counts if count.windows is not None and count.day < today]:
        raise ConflictError(f"{over[0]} was over before its new messages were counted: the next run counts it whole.")


def _copy(lake: Lake, database: Database, say: Progress) -> int:
    """Copy to PostgreSQL the days that it lacks or counts differently, for example after a restore.

    Days that only PostgreSQL has are not changed.
    """
    here, there = lake_sink.numbers_by_day(lake), postgres_sink.messages_by_day(database)
    lacking = sorted(day for day, numbers in here.items() if there.get(day) != numbers.messages)
    for day in lacking:
        say(f"{day}: copied to PostgreSQL, which had other numbers")
        with postgres_sink.replacing(database, [day], {grain: lake_sink.read(lake, grain, [day]) for grain in SPANS}):
            pass
    return len(lacking)


def _named(counts: Sequence[FileChoice]) -> str:
    first, last = counts[0].day, counts[-1].day
    return str(first) if first == last else f"{first} to {last}"
