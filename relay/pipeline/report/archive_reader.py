"""Reads a report's figures from the archive: number of rows, dead messages by code, slowest keys. Spark's tasks read a large archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.splits import Parts
from relay.pipeline.report import failures, slow_keys
from relay.pipeline.report.failures import DeadKind, Examples, Kind
from relay.pipeline.report.model import Failure, ReportSpan, SlowKey
from relay.pipeline.report.slow_keys import Slowest, Sums
from relay.pipeline.source.columns import INSTANT, TABLE
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

_TASK_ROWS = 1_000_000
"""About how many rows a task reads."""
_ROWS = 16_384
"""The number of rows that are decoded together."""


@dataclass(frozen=True)
class Scanned:
    """The figures of the archive's rows in a span."""

    rows: int
    failures: tuple[Failure, ...]
    slow_keys: tuple[SlowKey, ...]


class _FirstLook(NamedTuple):
    """The result of the first scan: the number of rows, the slowest keys, and the dead messages."""

    rows: int
    keys: Slowest
    dead: Mapping[Kind, DeadKind]

    def and_(self, more: _FirstLook) -> _FirstLook:
        """Both together."""
        return _FirstLook(self.rows + more.rows, slow_keys.together(self.keys, more.keys), failures.together(self.dead, more.dead))


_NOTHING = _FirstLook(0, slow_keys.NONE, {})


class _SecondLook(NamedTuple):
    """The result of the second scan: the messages of the slowest keys, and examples of dead messages."""

    sums: Sums
    examples: Examples

    def and_(self, more: _SecondLook) -> _SecondLook:
        """Both together."""
        return _SecondLook(self.sums.and_(more.sums), {**self.examples, **more.examples})


_NO_DETAILS = _SecondLook(Sums(Counter(), Counter()), {})


def read(lake: Lake, span: ReportSpan, carrier: Carrier, say: Callable[[str], None]) -> Scanned:
    """Scan the rows of a span twice: only the second scan knows which keys and which examples are wanted.

    Raises:
        DamagedError: a file is missing or damaged.
        LakeError: this process cannot read the archive.
        PipelineError: Spark could not run the scan.
        UnreachableError: the object store does not answer.
    """
    scan, found, details = _scan(lake, span), _NOTHING, _NO_DETAILS
    for one in carrier.each(scan.look, scan.tasks):
        found = found.and_(one)
        say(f"{many(found.rows, 'message')} read so far")
    found = found._replace(dead=failures.most_frequent(found.dead))
    for more in carrier.each(partial(scan.look_again, found), scan.tasks):
        details = details.and_(more)
    return Scanned(found.rows, failures.named(found.dead, details.examples), slow_keys.named(found.keys, details.sums))


def _scan(lake: Lake, span: ReportSpan) -> _SpanScan:
    handle, first, last = lake.open(TABLE), span.since.date(), span.until.date()
    chosen = [file for file in files(handle) if file.day is not None and first <= file.day <= last] if handle else []
    return _SpanScan(Parts.of(lake.place, TABLE, chosen, rows=_TASK_ROWS), span)


@dataclass(frozen=True)
class _SpanScan:
    """Reads rows of a span. This small object is sent to Spark's tasks."""

    parts: Parts
    span: ReportSpan

    @property
    def tasks(self) -> Sequence[int]:
        """The numbers of the tasks."""
        return range(len(self.parts.tasks))

    def look(self, task: int) -> _FirstLook:
        """Find the slowest keys and the dead messages."""
        found = _NOTHING
        for rows in self._rows(task, {*slow_keys.COLUMNS, *failures.COLUMNS}):
            found = found.and_(_FirstLook(rows.num_rows, slow_keys.slowest(rows), failures.counted(rows, task)))
        return found

    def look_again(self, found: _FirstLook, task: int) -> _SecondLook:
        """Add up the messages of the slowest keys, and read the examples of dead messages that are among this task's rows."""
        details = _NO_DETAILS
        for rows in self._rows(task, slow_keys.COLUMNS):
            details = details.and_(_NO_DETAILS._replace(sums=slow_keys.added_up(rows, found.keys)))
        places = [dead.place for dead in found.dead.values() if dead.task == task]
        for rows in self._rows(task, failures.DETAILS) if places else ():
            details = details.and_(_NO_DETAILS._replace(examples=failures.examples(rows, places)))
        return details

    def _rows(self, task: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Rows of the span; a column that a file does not have yet is null."""
        since, until = (pa.scalar(moment, INSTANT) for moment in (self.span.since, self.span.until))
        for _, batch in self.parts.batches(task, [*{*columns, "archived_at"}], rows=_ROWS):
            at = batch["archived_at"]
            rows = batch.filter(pc.and_(pc.greater_equal(at, since), pc.less(at, until)))
            for name in set(columns) - set(rows.schema.names):
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
            yield rows
