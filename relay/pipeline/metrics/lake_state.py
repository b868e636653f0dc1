"""Reads the size of the lake (files, rows and bytes of each table and day), and when jobs last changed it, from the logs. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from deltalake import DeltaTable

from relay.pipeline.lake.delta_lake import CHANGED, REPLACED, Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.errors import sentences
from relay.pipeline.source.database import Database

TABLES = ("archive", "stats_day", "stats_hour", "stats_window")
_JOBS = {"exported": ("archive", "WRITE"), "computed": ("stats_day", "WRITE"), "compacted": ("archive", "OPTIMIZE")}
"""The table and the operation in its log by which each job is recognised."""
_COMMITS = 1000
"""How many of the newest commits are searched; with an export each hour, these are the commits of six weeks."""


@dataclass(frozen=True, slots=True)
class DayFiles:
    """One day of one table."""

    name: str
    day: date
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table of the lake."""

    name: str
    days: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LakeState:
    """The current state of the lake; `jobs` says when each job last changed it."""

    days: tuple[DayFiles, ...]
    jobs: dict[str, datetime]

    def tables(self) -> tuple[TableSize, ...]:
        """The sums over all days, by table."""
        return tuple(_sum(name, list(days)) for name, days in groupby(self.days, attrgetter("name")))


def read(lake: Lake) -> LakeState:
    """Read the log of each existing table; raises the same errors as `Lake.open`."""
    handles = {name: handle for name in TABLES if (handle := lake.open(name)) is not None}
    with sentences(lake.place):
        times = {job: _last(handles[table], operation) for job, (table, operation) in _JOBS.items() if table in handles}
        days = tuple(day for name, handle in handles.items() for day in _days(name, handle))
    return LakeState(days, {job: at for job, at in times.items() if at is not None})


def record(lake: Lake, database: Database) -> None:
    """Write the lake's state to PostgreSQL, for dashboards that only know SQL; raises the errors of `read` and `Database.connection`."""
    state = read(lake)
    columns = {name: [getattr(day, name) for day in state.days] for name in ("name", "day", "files", "rows", "bytes")}
    with database.connection() as connection, connection.transaction():
        connection.execute(database.statement("write_lake_days"), columns)
        connection.execute(database.statement("write_lake_jobs"), {"jobs": list(state.jobs), "times": list(state.jobs.values())})


def _days(name: str, handle: DeltaTable) -> Iterable[DayFiles]:
    found = sorted((file for file in files(handle) if file.day is not None), key=attrgetter("day"))
    for day, group in groupby(found, attrgetter("day")):
        one = list(group)
        yield DayFiles(name, day, len(one), sum(file.rows for file in one), sum(file.size for file in one))


def _sum(name: str, days: list[DayFiles]) -> TableSize:
    return TableSize(name, len(days), *(sum(getattr(day, what) for day in days) for what in ("files", "rows", "bytes")))


def _last(handle: DeltaTable, operation: str) -> datetime | None:
    """When the newest commit of this kind was made."""
    times = (commit["timestamp"] for commit in handle.history(_COMMITS) if _operation(commit) == operation)
    newest = next(times, None)
    return None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)


def _operation(commit: Mapping[str, Any]) -> str | None:
    """The operation of a commit, in Delta's words. The library calls every commit of the pipeline a write, so the metadata decide."""
    if CHANGED.items() <= commit.items():
        return "UPDATE"
    return "OPTIMIZE" if REPLACED.items() <= commit.items() else commit.get("operation")
