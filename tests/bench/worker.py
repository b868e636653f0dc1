"""A process with a Spark session that runs commands, one JSON line each, and reports how long each took.

`python -m tests.bench.worker MASTER OPTIONS`. Each master needs a process of its own, because a JVM has one. The process is kept, so that
no figure includes the start of a session.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict

from relay.pipeline.compact import job as compact
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import job as metrics
from relay.pipeline.report import job as report
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from relay.pipeline.spark.session import spark_session
from relay.pipeline.verify import job as verify
from tests.bench.synthetic import add_days

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FETCH = 10_000
"""Rows that the JDBC driver asks for at a time; by default it holds the whole answer."""
Answer = dict[str, Any]


class Worker:
    """The process, from `with` on; what it logs is in a file of the folder.

    Args:
        master: as spark-submit takes it.
        folder: for its log and what Spark puts aside.
        options: of the session.
    """

    def __init__(self, master: str, folder: Path, options: dict[str, str]) -> None:
        self.master = master
        self._folder = folder
        given = {"spark.driver.memory": "1g", "spark.local.dir": str(folder), **options}
        self._command = [sys.executable, "-m", "tests.bench.worker", master, json.dumps(given)]
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Of the driver's Python."""
        assert self._process is not None
        return self._process.pid

    def ask(self, do: str, **values: Any) -> Answer:
        """Let it do something; RuntimeError with its last words if it could not."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{do} at {self.master} failed: {self._log.read_text(errors='replace')[-2000:]}")
        answer: Answer = json.loads(line)
        return answer

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.master.partition(',')[0].strip('[]')}.log"

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(Path.cwd()),
            "SPARK_WORKER_DIR": str(self._folder / "workers"),
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.ask("nothing")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


def _nothing(spark: SparkSession) -> Answer:
    return {"version": spark.version, "slots": spark.sparkContext.defaultParallelism}


def _export(spark: SparkSession, url: str, lake: str) -> Answer:
    place = Lake(lake)
    # Where each round begins a lake, PostgreSQL still knows the one before.
    begins = place.open(TABLE) is None
    with Database(url) as database:
        done = export.run(lake=place, database=database, spark=lambda: spark, say=lambda _: None, new_lake=begins)
    return {"rows": done.rows, "files": done.files, "batches": done.batches}


def _jdbc(spark: SparkSession, url: str, selects: Sequence[str], folder: str, *, by_day: bool) -> Answer:
    """Read with Spark's JDBC source, one statement a task, and write with Spark's Parquet writer, as its settings are."""
    reader = spark.read.format("jdbc").option("driver", "org.postgresql.Driver").option("fetchsize", FETCH)
    for name, value in _jdbc_options(url).items():
        reader = reader.option(name, value)
    parts = [reader.option("query", select).load() for select in selects]
    writer = functools.reduce(lambda one, other: one.unionAll(other), parts).write
    (writer.partitionBy("day") if by_day else writer).parquet(folder)
    return {}


def _jdbc_options(url: str) -> dict[str, str]:
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    return {
        "url": f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}",
        "user": parts["user"],
        "password": parts["password"],
    }


def _count(spark: SparkSession, folder: str) -> Answer:
    return {"rows": spark.read.parquet(folder).count()}


def _metrics(spark: SparkSession, url: str, lake: str) -> Answer:
    with Database(url) as database:
        done = metrics.run(lake=Lake(lake), database=database, spark=lambda: spark, say=lambda _: None)
    return {"messages": done.messages, "windows": done.windows}


def _verify(_: SparkSession, url: str, lake: str) -> Answer:
    with Database(url) as database:
        done = verify.run(lake=Lake(lake), database=database, say=lambda _: None, again=True)
    return {"rows": done.rows, "exit_code": done.exit_code}


def _add_days(spark: SparkSession, lake: str, template: str, backs: Sequence[int]) -> Answer:
    """Copies of a day, for as many earlier days; only the lake hears of them."""
    carrier = Carrier(lambda: spark, lambda _: None, spark.sparkContext.defaultParallelism)
    return {"rows": add_days(Lake(lake), carrier, date.fromisoformat(template), backs)}


def _compact(spark: SparkSession, url: str, lake: str) -> Answer:
    with Database(url) as database:
        done = compact.run(lake=Lake(lake), database=database, spark=lambda: spark, say=lambda _: None)
    return {"days": len(done.days), "files_before": done.files_before, "files_after": done.files_after}


def _report(spark: SparkSession, url: str, lake: str, since: str, until: str) -> Answer:
    begin, end = map(datetime.fromisoformat, (since, until))
    with Database(url) as database, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        done = report.run(lake=Lake(lake), database=database, say=lambda _: None, path=path, spark=lambda: spark, since=begin, until=end)
    return {"messages": done.messages, "bytes": done.bytes}


def _heap(spark: SparkSession) -> Answer:
    """What the driver's JVM holds after a collection, in bytes."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    runtime.gc()
    return {"bytes": runtime.totalMemory() - runtime.freeMemory()}


KNOWN: dict[str, Callable[..., Answer]] = {
    "nothing": _nothing,
    "export": _export,
    "jdbc": _jdbc,
    "count": _count,
    "metrics": _metrics,
    "verify": _verify,
    "add_days": _add_days,
    "compact": _compact,
    "report": _report,
    "heap": _heap,
}


def main(master: str, options: dict[str, str]) -> None:
    """Do what standard input says, until it ends."""
    # Only answers go to the standard output, whatever a library prints.
    answers, sys.stdout = sys.stdout, sys.stderr
    spark = spark_session("relay bench", master, options)
    for line in sys.stdin:
        values = json.loads(line)
        job = KNOWN[values.pop("do")]
        begin = time.monotonic()
        answer = job(spark, **values)
        answers.write(json.dumps({**answer, "seconds": time.monotonic() - begin}) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
