"""What the pipeline costs, compared with Spark's own reader and writer: `python -m tests.bench.pipeline`, or `make bench-pipeline`.

Private servers; the sides take turns, and the first round is not counted. Prints progress, a table, and writes JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from relay.devservers import apt
from relay.devservers.java import find_java
from tests.bench import machine
from tests.bench.figures import Figure, figure, ratio, table
from tests.bench.growth import BYTES_IN_LAKE, growing
from tests.bench.history import History, server
from tests.bench.turns import Bench
from tests.bench.worker import Worker

JAR = Path("/usr/share/java/postgresql.jar")
DRIVER = "libpostgresql-jdbc-java"
NEW = 10_000
"""Rows of an incremental export."""
CLUSTER = "local-cluster[2,1,1024]"
PACKAGES = ("pyspark", "pyarrow", "deltalake", "adbc-driver-postgresql")
BYTES_OF_A_ROW = 2_000
"""On the disk, in PostgreSQL with its indexes and logs and in a lake, with room to spare."""


def copying(bench: Bench, history: History, workers: Sequence[Worker], jar: Path | None) -> list[Figure]:
    """Our export and Spark's own means on the same rows."""
    selects = history.selects(2)
    forms = {"JDBC, Parquet by day": True, "JDBC, Parquet": False} if jar else {}

    def ours(worker: Worker) -> float:
        answer = worker.ask("export", url=history.url, lake=bench.emptied("lake"))
        assert history.rows == answer["rows"], answer
        return float(answer["seconds"])

    def theirs(worker: Worker, *, by_day: bool) -> float:
        folder = bench.emptied("parquet")
        seconds = worker.ask("jdbc", url=history.url, selects=selects, folder=folder, by_day=by_day)["seconds"]
        assert history.rows == worker.ask("count", folder=folder)["rows"]
        return float(seconds)

    sides: dict[str, Callable[[], float]] = {}
    for worker in workers:
        sides[f"export, {worker.master}"] = functools.partial(ours, worker)
        for form, by_day in forms.items():
            sides[f"{form}, {worker.master}"] = functools.partial(theirs, worker, by_day=by_day)
    found = bench.take_turns(sides)
    for name in ("lake", "parquet"):
        bench.emptied(name)
    return _compared(found, [worker.master for worker in workers], list(forms))


def _compared(found: dict[str, list[float]], masters: Sequence[str], forms: Sequence[str]) -> list[Figure]:
    figures = []
    for master in masters:
        names = [f"export, {master}", *(f"{form}, {master}" for form in forms)]
        figures += [figure(name, "s", found[name]) for name in names]
        figures += [ratio(f"{name} : export", found[name], found[names[0]], least=1.5) for name in names[1:]]
    return figures


def counting(bench: Bench, day: History, worker: Worker) -> list[Figure]:
    """Export, metrics and verification of one day."""
    lake = str(bench.folder / "day")

    def export() -> float:
        answer = worker.ask("export", url=day.url, lake=bench.emptied("day"))
        assert day.rows == answer["rows"], answer
        return float(answer["seconds"])

    def metrics() -> float:
        day.forget_numbers()
        answer = worker.ask("metrics", url=day.url, lake=lake)
        assert day.rows == answer["messages"], answer
        return float(answer["seconds"])

    def verify() -> float:
        answer = worker.ask("verify", url=day.url, lake=lake)
        assert (day.rows, 0) == (answer["rows"], answer["exit_code"]), answer
        return float(answer["seconds"])

    found = defaultdict[str, list[float]](list)
    for number in range(bench.rounds + 1):
        for name, side in {"export": export, "metrics": metrics, "verify": verify}.items():
            seconds = side()
            bench.say(f"one day, {name}: {seconds:.2f} s{'' if number else ' (not counted)'}")
            if number:
                found[name].append(seconds)
    bench.emptied("day")
    return [
        *(figure(f"one day, {name}, {worker.master}", "s", seconds) for name, seconds in found.items()),
        ratio("metrics : export of one day", found["metrics"], found["export"], most=1.0),
        figure("verify", "rows/s", [day.rows / seconds for seconds in found["verify"]]),
    ]


def adding(bench: Bench, big: History, little: History, worker: Worker) -> list[Figure]:
    """An export of a few new rows: into a lake with many old rows, and into an empty lake that exists already."""
    lake = bench.emptied("big")
    worker.ask("export", url=big.url, lake=lake)
    before = f"{NEW:,} rows beside {big.rows:,}"

    def beside() -> float:
        big.grow(NEW)
        return _new(worker, big.url, lake)

    def alone() -> float:
        little.empty()
        empty = bench.emptied("little")
        worker.ask("export", url=little.url, lake=empty)
        little.grow(NEW)
        return _new(worker, little.url, empty)

    into = f"{NEW:,} rows into an empty lake"
    found = bench.take_turns({before: beside, into: alone})
    bench.emptied("big")
    return [*(figure(name, "s", found[name]) for name in (before, into)), ratio(f"{before} : alone", found[before], found[into], most=1.2)]


def _new(worker: Worker, url: str, lake: str) -> float:
    answer = worker.ask("export", url=url, lake=lake)
    assert NEW == answer["rows"], answer
    return float(answer["seconds"])


def holding(bench: Bench, history: History) -> list[Figure]:
    """Seconds of an export and a verification on a cluster of processes, and what the driver has in memory at most during each."""
    options = {"spark.executorEnv.PYTHONPATH": str(Path.cwd()), "spark.executor.memory": "1g"}
    lake, name = bench.emptied("cluster"), f"driver at {history.rows:,} rows"
    with Worker(CLUSTER, bench.folder, options) as worker:
        heaps = [worker.ask("heap")["bytes"]]
        figures = [one for job in ("export", "verify") for one in _held(bench, worker, job, history, lake)]
        heaps.append(worker.ask("heap")["bytes"])
    bench.emptied("cluster")
    held = zip(("before", "after"), heaps, strict=True)
    return [*figures, *(figure(f"{name}: heap after collection, {when}", "MiB", [size / machine.MIB]) for when, size in held)]


def _held(bench: Bench, worker: Worker, job: str, history: History, lake: str) -> list[Figure]:
    with machine.watched(worker.pid) as seen:
        answer = worker.ask(job, url=history.url, lake=lake)
    assert history.rows == answer["rows"], answer
    most = {"Python": max(seen.python) / machine.MIB, "JVM": max(seen.jvm) / machine.MIB}
    bench.say(
        f"{job} of {history.rows:,} rows: {answer['seconds']:.1f} s, {', '.join(f'{name} {size:.0f} MiB' for name, size in most.items())}"
    )
    name = f"driver at {history.rows:,} rows: {job}"
    return [figure(name, "s", [answer["seconds"]]), *(figure(f"{name}, {part}", "MiB", [size]) for part, size in most.items())]


def short(bench: Bench, rows: int) -> list[Figure]:
    """Everything but the memory."""
    jar = _jar(bench)
    with ExitStack() as stack:
        history = _made(bench, "history", rows, a_day=-(-rows // 3))
        day = _made(bench, "day", rows, a_day=rows)
        little = History(bench.server, "little", a_day=history.a_day)
        options = {"spark.jars": str(jar)} if jar else {}
        one, two = (stack.enter_context(Worker(master, bench.folder, options)) for master in ("local[1]", "local[2]"))
        return [
            *copying(bench, history, (one, two), jar),
            *counting(bench, day, two),
            *adding(bench, history, little, two),
        ]


def long(bench: Bench, sizes: Sequence[int], days: Sequence[int], a_day: int) -> list[Figure]:
    """Memory by the number of rows, an export of a few new rows next to the largest number, and a lake of more and more days."""
    history = History(bench.server, "history", a_day=-(-sizes[0] // 3))
    figures = []
    for size in sizes:
        history.grow(size - history.rows, say=bench.say)
        history.settle_down()
        figures += holding(bench, history)
    little = History(bench.server, "little", a_day=history.a_day)
    with Worker("local[2]", bench.folder, {}) as worker:
        return [*figures, *adding(bench, history, little, worker), *growing(bench, days, a_day)]


def _made(bench: Bench, name: str, rows: int, *, a_day: int) -> History:
    history = History(bench.server, name, a_day=a_day)
    history.grow(rows, say=bench.say)
    history.settle_down()
    bench.say(f"contents of {history.content_bytes():.0f} bytes")
    return history


def _jar(bench: Bench) -> Path | None:
    """Spark's side of the comparison needs a driver; without one it is left out."""
    if not JAR.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        apt.install(DRIVER, say=bench.say)
    if not JAR.exists():
        bench.say(f"JDBC is left out: there is no {JAR}; type: sudo apt-get install {DRIVER}")
        return None
    return JAR


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    rows, in_lake = (max(given.sizes), max(given.days) * given.a_day) if given.long else (2 * given.rows, 0)
    needed = BYTES_OF_A_ROW * rows + BYTES_IN_LAKE * in_lake
    if machine.free_bytes() < needed:
        sys.exit(f"This takes {needed >> 30} GB below /tmp and {machine.free_bytes() >> 30} GB are free: make room, or measure fewer rows.")
    os.environ["JAVA_HOME"] = str(find_java(say=lambda line: print(line, flush=True)))  # noqa: T201
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder, server(print) as postgres:
        bench = Bench(postgres, Path(folder), given.rounds, time.monotonic())
        facts = machine.described(postgres.url, PACKAGES)
        bench.say("; ".join(f"{name} {value}" for name, value in facts.items()))
        figures = long(bench, given.sizes, given.days, given.a_day) if given.long else short(bench, given.rows)
    print(f"\n{table(figures)}\n")  # noqa: T201
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"facts": facts, "figures": [one.as_json() for one in figures]}, indent=2, ensure_ascii=False))
    print(f"{given.json} has the rounds")  # noqa: T201
    return 1 if any(one.met is False for one in figures) else 0


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="memory of the driver, few rows beside many, and a lake of a hundred days")
    parser.add_argument(
        "--sizes", type=_numbers, default=[1_000_000, 3_000_000, 10_000_000], help="rows of which the driver's memory is measured"
    )
    parser.add_argument("--days", type=_numbers, default=[1, 10, 100], help="days of the lake that grows")
    parser.add_argument("--a-day", type=int, default=1_000_000, help="rows of each of these days")
    parser.add_argument("--json", type=Path, default=Path("build/bench/pipeline.json"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
