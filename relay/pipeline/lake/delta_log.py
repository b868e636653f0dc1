"""Reads what the log says of the files of a table's version."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from relay.errors import LakeError
from relay.pipeline.source.columns import DAY


class LoggedFile(NamedTuple):
    """One file, with the path that the log has, relative to the table. The library's `file_uris` would escape blanks and follow links."""

    path: str
    day: date | None
    """None if the table is not partitioned by day."""
    size: int
    rows: int
    newest: int | None
    """Its highest `archived_xid`; None if the log does not say."""
    oldest: int | None = None
    """Its lowest `archived_xid`; None as above."""
    written: datetime | None = None
    """When it was written, by the clock of the machine that wrote it; None for a file that is not in the log yet."""
    first: int | None = None
    """Its lowest `xid`; None if the log does not say."""
    last: int | None = None
    """Its highest `xid`; None as above."""

    def removal(self, *, data_change: bool = True) -> RemoveAction:
        """The log's entry that removes the file from the table. Without `data_change`, other files still have its rows."""
        days: dict[str, str | None] = {} if self.day is None else {DAY.name: self.day.isoformat()}
        return RemoveAction(self.path, data_change, int(time.time() * 1000), self.size, days)


def files(handle: DeltaTable) -> list[LoggedFile]:
    """The files of the handle's version, in no particular order.

    Raises:
        LakeError: the log does not say how many rows a file has; statistics are optional there.
    """
    found = _logged(handle)
    if unknown := next((file.path for file in found if file.rows is None), None):
        raise LakeError(f"The log of the lake has no statistics of the file {unknown}: let the program that wrote it write them, too.")
    return found


def paths(handle: DeltaTable, days: Iterable[date] | None = None) -> list[str]:
    """The paths of the version's files, relative to the table; with `days` only the files of these days."""
    wanted = None if days is None else set(days)
    return [file.path for file in _logged(handle) if wanted is None or file.day in wanted]


def _logged(handle: DeltaTable) -> list[LoggedFile]:
    actions = pa.table(handle.get_add_actions(flatten=True))

    def column(name: str) -> Sequence[Any]:
        return actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows

    days = map(_day, column(f"partition.{DAY.name}"))
    fields = (column("path"), days, column("size_bytes"), column("num_records"), column("max.archived_xid"), column("min.archived_xid"))
    inserted = (column("min.xid"), column("max.xid"))
    return list(map(LoggedFile._make, zip(*fields, map(_time, column("modification_time")), *inserted, strict=True)))


def files_by_day(handle: DeltaTable) -> Mapping[date, list[LoggedFile]]:
    """The files of the handle's version by day, in the order of their paths."""
    found: defaultdict[date, list[LoggedFile]] = defaultdict(list)
    for file in sorted(files(handle), key=lambda file: file.path):
        if file.day is not None:
            found[file.day].append(file)
    return found


def _day(value: date | str | None) -> date | None:
    """A day as the library gives it: a date, or its text."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
