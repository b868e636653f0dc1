"""Runs a function for each number in Spark's tasks; the driver raises a task's error with its original type and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.errors import DamagedError, LakeError, PipelineError, UnreachableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

Read = Callable[[int], Iterator[pa.RecordBatch]]
_MARK = re.compile(r"\[relay (\w+)\] (.*?) \[end\]", re.DOTALL)
_PART: ContextVar[str | None] = ContextVar("part", default=None)
"""The number of the current task and the number of all tasks. One process of Spark runs several tasks, one after the other."""
_LONGEST = 63
"""Bytes of a name that PostgreSQL keeps."""
_EXECUTORS = {
    re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'$", re.MULTILINE): (
        "The executors' Python has no package {}: give it the driver's packages, by an image, on each host or by an archive."
    ),
    re.compile(r'Cannot run program "([^"\n]+)": error=2\b'): (
        "There is no Python at {} on the executors' hosts: name an existing one in PYSPARK_PYTHON or spark.pyspark.python."
    ),
    re.compile(r'Cannot run program "([^"\n]+)" \(in directory "([^"\n]+)"\): error=2\b'): (
        "On the executors' hosts there is no Python at {}, or no folder {} to start it in: name an existing Python in PYSPARK_PYTHON or"
        " spark.pyspark.python, and see that Spark's local folders have room and are not deleted."
    ),
    re.compile(r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)"): (
        "The executors' Python is {} and the driver's {}: name one of the driver's version in PYSPARK_PYTHON or spark.pyspark.python."
    ),
}
"""The messages of Spark 4.3 if an executor has no suitable Python, and a sentence that says what to do for each."""
_KINDS = {kind.__name__: kind for kind in (PipelineError, UnreachableError, LakeError, DamagedError)}


def by_number(spark: SparkSession, count: int, read: Read, schema: StructType | str, *, most: int | None = None) -> DataFrame:
    """The rows that `read` returns for each number below `count`. `read` is sent to the tasks; see `failure` for its errors.

    Each number has a task of its own. If there are more numbers than `most`, they are shared by `most` tasks, which work on one after the
    other.
    """
    tasks = max(1, count if most is None else min(count, most))
    return spark.range(0, count, 1, tasks).mapInArrow(in_task(read, tasks), schema)


def collected(spark: SparkSession, count: int, read: Read, schema: StructType | str, *, most: int) -> list[Row]:
    """The rows of `by_number`, which must be few; after an interrupt no task continues.

    Raises:
        PipelineError: a task failed (the text is the task's error), or Spark failed (the text is the first line of Spark's error).
        UnreachableError, LakeError: a task raised this error.
    """
    try:
        return by_number(spark, count, read, schema, most=most).collect()
    except Exception as error:
        raise failure(error) or _of_spark(error) from error
    except BaseException:
        with suppress(Exception):
            spark.sparkContext.cancelAllJobs()
        raise


def in_task(read: Read, tasks: int = 1) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that calls `read` for each number."""

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _note_part(tasks)
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            try:
                yield from read(number)
            except PipelineError as error:
                # An error of this form survives Spark's wrapping. The cause is left out, because its text could contain a row or a secret.
                raise RuntimeError(f"[relay {type(error).__name__}] {error} [end]") from None

    return run


def named(conninfo: str) -> str:
    """The conninfo of a task's connection. Its name in pg_stat_activity ends with the task and the number of tasks: `… verify 3/8`."""
    if (part := _PART.get()) is None:
        return conninfo
    name = str(conninfo_to_dict(conninfo).get("application_name") or "")
    return make_conninfo(conninfo, application_name=f"{name[: _LONGEST - len(part)]}{part}")


def _note_part(tasks: int) -> None:
    """Store the task's number for `named`.

    This must not be a nested function. Spark would pickle a nested function with the variables that it uses, and a `ContextVar` cannot be
    pickled.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - Spark only where it is used

    context = TaskContext.get()
    _PART.set(None if context is None else f" {context.partitionId() + 1}/{tasks}")


def failure(error: Exception) -> PipelineError | None:
    """The task's error inside an error of Spark, or an error about the executors' Python; None for other errors of Spark."""
    if (found := _MARK.search(said := str(error))) is not None:
        return _KINDS.get(found[1], PipelineError)(found[2])
    looks = ((pattern.search(said), sentence) for pattern, sentence in _EXECUTORS.items())
    return next((PipelineError(sentence.format(*found.groups())) for found, sentence in looks if found), None)


def _of_spark(error: Exception) -> PipelineError:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    return PipelineError(f"Spark could not run the job: see its logs and run it again ({line}).")
