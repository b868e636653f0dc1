"""Decides, from the table's log, which files of a past day are merged into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.parquet_writer import FULL


class Pack(NamedTuple):
    """Files of one day that are merged into one file."""

    day: date
    files: tuple[LoggedFile, ...]

    @property
    def rows(self) -> int:
        """How many rows all its files have."""
        return sum(file.rows for file in self.files)


def packs(files: Iterable[LoggedFile], today: date, full: int = FULL) -> list[Pack]:
    """Packs of the days before `today`, the oldest day first.

    A pack has two or more neighbouring files, each smaller than half of `full` bytes.
    """
    small: defaultdict[date, list[LoggedFile]] = defaultdict(list)
    for file in files:
        if file.day is not None and file.day < today and file.size < full // 2:
            small[file.day].append(file)
    return [pack for day in sorted(small) for pack in _of_day(day, small[day], full)]


def _of_day(day: date, files: list[LoggedFile], full: int) -> Iterator[Pack]:
    """Pack files in the order of their transactions, so that each new file covers one contiguous period."""
    held: list[LoggedFile] = []
    for file in sorted(files, key=lambda file: (file.oldest or 0, file.path)):
        if held and sum(one.size for one in held) + file.size > full:
            yield from _worth(day, held)
            held = []
        held.append(file)
    yield from _worth(day, held)


def _worth(day: date, held: list[LoggedFile]) -> Iterator[Pack]:
    if len(held) > 1:
        yield Pack(day, tuple(held))
