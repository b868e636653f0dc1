"""Ranges compared one after the other in this process, or by Spark's tasks where there are enough of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.errors import PipelineError
from relay.pipeline.checksum import Sum
from relay.pipeline.comparison import Comparison, Finding, Found
from relay.pipeline.partitions import Range
from relay.pipeline.session import started
from relay.pipeline.tasks import collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORTH_STARTING = 8
"""Ranges from which on a session is started, which takes as long as some of them."""
_DDL = "number long, found string"
_SCHEMA = pa.schema([("number", pa.int64()), ("found", pa.string())])

Start = Callable[[], "SparkSession"]


@dataclass
class Carrier:
    """Compares ranges; without `spark`, or where it does not start, in this process."""

    comparison: Comparison
    spark: Start | None
    say: Callable[[str], None]
    connections: int

    def compare(self, ranges: Sequence[Range]) -> Iterable[Found]:
        """What each range came to, in their order; errors as `Comparison.compare`."""
        session = self._session(len(ranges))
        if session is None:
            return map(self.comparison.compare, ranges)
        work = partial(_compared, self.comparison, tuple(ranges))
        rows = collected(session, len(ranges), work, _DDL, most=self.connections)
        return [_read(row.found) for row in sorted(rows, key=lambda row: row.number)]

    def _session(self, ranges: int) -> SparkSession | None:
        if self.spark is None or ranges < (2 if started() else _WORTH_STARTING):
            return None
        try:
            return self.spark()
        except PipelineError as error:
            self.say(f"without Spark, one range after the other: {error}")
            self.spark = None
            return None


def _compared(comparison: Comparison, ranges: Sequence[Range], number: int) -> Iterator[pa.RecordBatch]:
    """A range in a task. Whole numbers of any size travel as text."""
    found = comparison.compare(ranges[number])
    findings = [astuple(one) for one in found.findings]
    text = json.dumps([found.ours, found.theirs, found.differs, findings])
    yield pa.RecordBatch.from_pylist([{"number": number, "found": text}], schema=_SCHEMA)


def _read(text: str) -> Found:
    ours, theirs, differs, findings = json.loads(text)
    return Found(Sum(*ours), Sum(*theirs), differs, tuple(Finding(*one) for one in findings))
