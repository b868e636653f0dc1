"""Runs a function on items: one after the other in this process, or in Spark's tasks if there are enough items."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from relay.errors import PipelineError
from relay.pipeline.spark.session import started
from relay.pipeline.spark.tasks import collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORTH_STARTING = 8
"""A session is started for this many items or more; its start takes as long as the work on a few items."""
_DDL = "number long, result binary"
_SCHEMA = pa.schema([("number", pa.int64()), ("result", pa.binary())])

Start = Callable[[], "SparkSession"]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Carrier:
    """Runs work on items in Spark's tasks; in this process for few items, without `spark`, or if Spark does not start.

    Args:
        spark: returns the session, and starts it if needed.
        say: is called with the reason if Spark does not start.
        most: how many tasks run at a time.
    """

    spark: Start | None
    say: Callable[[str], None]
    most: int

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """The result for each item, in order. `work`, items and results are sent between processes: keep them small and picklable.

        Raises:
            PipelineError, UnreachableError, LakeError: `work` raised the error, or Spark could not run `work`.
        """
        session = self._session(len(items))
        if session is None:
            return map(work, items)
        rows = collected(session, len(items), partial(_done, work, tuple(items)), _DDL, most=self.most)
        return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]  # noqa: S301 - from tasks of this job

    def _session(self, items: int) -> SparkSession | None:
        if self.spark is None or items < (2 if started() else _WORTH_STARTING):
            return None
        try:
            return self.spark()
        except PipelineError as error:
            self.say(f"without Spark, one after the other: {error}")
            self.spark = None
            return None


def _done(work: Callable[[Any], Any], items: Sequence[Any], number: int) -> Iterator[pa.RecordBatch]:
    """Work on one item in a task."""
    yield pa.RecordBatch.from_pylist([{"number": number, "result": pickle.dumps(work(items[number]))}], schema=_SCHEMA)
