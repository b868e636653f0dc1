"""Which of a day's files a run of the metrics counts: none, all of them, or those that are new; decided from what the lake says. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.metrics import aggregate, top_keys

CLOCKS = timedelta(minutes=10)
"""How far the clocks of PostgreSQL and of the machine that writes numbers may differ, together with the time that writing takes."""


class DayTotals(NamedTuple):
    """What the lake says of a day's numbers: how many messages they count, and when they were written."""

    messages: int
    written: datetime


class CountingTerms(NamedTuple):
    """What old windows must agree with if new files are to be added to them: the target in ms, and how many exchanges a day may name."""

    target_ms: int
    exchanges: int


class Base(NamedTuple):
    """A day's windows in the lake, and the files of the archive that they should count."""

    windows: pa.Table
    files: Sequence[LoggedFile]


class FileChoice(NamedTuple):
    """Files of a day to count, and the windows that count its other files; None if there are no others."""

    day: date
    files: Sequence[LoggedFile]
    windows: pa.Table | None

    @property
    def rows(self) -> int:
        """How many rows there are to count."""
        return _rows(self.files)


def is_due(day: date, files: Sequence[LoggedFile], numbers: DayTotals | None, today: date) -> bool:
    """Whether a day has no numbers, or its numbers count another number of messages than its files hold, or may be from before its end."""
    return numbers is None or numbers.messages != _rows(files) or is_early(day, numbers, today)


def is_early(day: date, numbers: DayTotals | None, today: date) -> bool:
    """Whether the numbers of a day that is over may be from before its end: only then can they have been counted in parts."""
    return numbers is not None and day < today and (numbers.written - CLOCKS).date() <= day


def choose(day: date, files: Sequence[LoggedFile], base: Base | None, *, today: date, terms: CountingTerms) -> FileChoice:
    """Count the files that an open day's windows lack, if the windows are known to count the other files; else count the whole day."""
    if base is None or day < today or not _holds(base, files, terms):
        return FileChoice(day, files, None)
    counted = {file.path for file in base.files}
    return FileChoice(day, [file for file in files if file.path not in counted], base.windows)


def _holds(base: Base, files: Sequence[LoggedFile], terms: CountingTerms) -> bool:
    """Whether the windows count the base's files, all of which are still there, by the same target and with few enough exchanges.

    Rows are only added, and no column that is counted ever changes. So if windows count as many messages as the files have rows, they count
    these rows.
    """
    messages = pc.sum(aggregate.messages(base.windows)).as_py() or 0
    still_there = {file.path for file in base.files} <= {file.path for file in files}
    exchanges = len(top_keys.of_numbers(base.windows).exchanges)
    is_so = messages == _rows(base.files) and pc.unique(base.windows["target_ms"]).to_pylist() == [terms.target_ms]
    return still_there and is_so and exchanges <= terms.exchanges


def _rows(files: Sequence[LoggedFile]) -> int:
    return sum(file.rows for file in files)
