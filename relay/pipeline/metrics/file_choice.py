"""Chooses, from what the lake says, the files of a day that a run of the metrics counts: none, all, or the new ones. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.metrics import aggregate, top_keys

CLOCKS = timedelta(minutes=10)
"""The allowed difference between the clocks of PostgreSQL and of the machine that writes numbers, plus the time that writing takes."""


class DayTotals(NamedTuple):
    """A day's numbers in the lake: how many messages they count, and when they were written."""

    messages: int
    written: datetime


class CountingTerms(NamedTuple):
    """The target in ms, and how many exchanges a day may name.

    New files are added only to old windows that agree with these terms.
    """

    target_ms: int
    exchanges: int


class Base(NamedTuple):
    """A day's windows in the lake, and the files of the archive that they should count."""

    windows: pa.Table
    files: Sequence[LoggedFile]


class FileChoice(NamedTuple):
    """Files of a day to count, and the windows that count the day's other files; None if all files are to be counted."""

    day: date
    files: Sequence[LoggedFile]
    windows: pa.Table | None

    @property
    def rows(self) -> int:
        """How many rows these files have."""
        return _rows(self.files)


def is_due(day: date, files: Sequence[LoggedFile], numbers: DayTotals | None, today: date) -> bool:
    """Whether a day must be computed.

    A day is due if it has no numbers, or if these count more or fewer messages than its files have rows. A past day is also due if its
    numbers may have been written before its end.
    """
    return numbers is None or numbers.messages != _rows(files) or is_early(day, numbers, today)


def is_early(day: date, numbers: DayTotals | None, today: date) -> bool:
    """Whether the numbers of a past day may have been written before its end. Only such numbers can have been counted in parts."""
    return numbers is not None and day < today and (numbers.written - CLOCKS).date() <= day


def choose(day: date, files: Sequence[LoggedFile], base: Base | None, *, today: date, terms: CountingTerms) -> FileChoice:
    """Choose the files that an open day's windows do not count, if the windows certainly count all other files; else the whole day."""
    if base is None or day < today or not _holds(base, files, terms):
        return FileChoice(day, files, None)
    counted = {file.path for file in base.files}
    return FileChoice(day, [file for file in files if file.path not in counted], base.windows)


def _holds(base: Base, files: Sequence[LoggedFile], terms: CountingTerms) -> bool:
    """Whether the windows count the base's files by the same target and with few enough exchanges, and all these files still exist.

    Rows are only added, and the counted columns never change. If the windows count as many messages as the files have rows, they count
    exactly these rows.
    """
    messages = pc.sum(aggregate.messages(base.windows)).as_py() or 0
    still_there = {file.path for file in base.files} <= {file.path for file in files}
    exchanges = len(top_keys.of_numbers(base.windows).exchanges)
    is_so = messages == _rows(base.files) and pc.unique(base.windows["target_ms"]).to_pylist() == [terms.target_ms]
    return still_there and is_so and exchanges <= terms.exchanges


def _rows(files: Sequence[LoggedFile]) -> int:
    return sum(file.rows for file in files)
