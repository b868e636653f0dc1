"""Jobs on a lake of more and more days: whether their time follows the rows that they work on, and what the driver holds.

One day comes from PostgreSQL. The others are copies of it that only the lake has, so nothing is verified here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType

from tests.bench import machine
from tests.bench.figures import Figure, figure, ratio
from tests.bench.history import History
from tests.bench.turns import Bench
from tests.bench.worker import Answer, Worker

MILLION = 1_000_000
BYTES_IN_LAKE = 200
"""Of a row before and after a compaction, whose old files stay, with room to spare."""
NEW = 10_000
"""Rows of an export next to all the others."""
STEADY = 1.25
"""How much longer a row may take, and how much more the driver may hold, at the last size than at the one before."""


def growing(bench: Bench, days: Sequence[int], a_day: int) -> list[Figure]:
    """Make a lake of as many days as each of `days` says, one after the other, and let each job work on what is new."""
    source = History(bench.server, "growth", a_day=a_day)
    source.grow(a_day, say=bench.say)
    source.settle_down()
    lake = bench.emptied("growth")
    figures: list[Figure] = []
    with Worker("local[2]", bench.folder, {}) as worker:
        worker.ask("export", url=source.url, lake=lake)
        for before, size in zip([1, *days], days, strict=False):
            figures += _Size(bench, worker, source, lake, size).measured(range(before, size))
    bench.emptied("growth")
    return [*figures, *_compared(figures, *(size * a_day for size in days[-2:]))] if len(days) > 1 else figures


class _Size:
    """The lake at one size."""

    def __init__(self, bench: Bench, worker: Worker, source: History, lake: str, days: int) -> None:
        self._bench, self._worker, self._rows = bench, worker, days * source.a_day
        self._source, self._places = source, {"url": source.url, "lake": lake}

    def measured(self, backs: range) -> list[Figure]:
        """The figures of every job, after a copy of the first day was added for each of these numbers of days before it."""
        template = self._source.first.isoformat()
        added = self._worker.ask("add_days", lake=self._places["lake"], template=template, backs=list(backs))["rows"]
        assert added == self._source.a_day * len(backs), added
        self._bench.say(f"a lake of {self._rows:,} rows")
        return [*self._jobs(max(added, self._source.a_day)), *self._new_rows()]

    def _jobs(self, rows: int) -> list[Figure]:
        end = datetime.combine(self._source.first, time(), UTC) + timedelta(days=1)
        year = {"since": (end - timedelta(days=365)).isoformat(), "until": end.isoformat()}
        return [
            *self._job("compact", "of a million rows", rows),
            *self._job("metrics", "of a million rows", rows),
            *self._job("metrics", "without new rows"),
            *self._job("report", "of a year", values=year),
        ]

    def _new_rows(self) -> list[Figure]:
        self._source.grow(NEW)
        return self._job("export", f"of {NEW:,} new rows")

    def _job(self, job: str, what: str, rows: int = MILLION, values: Mapping[str, str] = MappingProxyType({})) -> list[Figure]:
        """Seconds for a million of `rows`, and the most that the driver's Python and its JVM held."""
        with machine.watched(self._worker.pid) as seen:
            answer = self._worker.ask(job, **self._places, **values)
        self._bench.say(f"{job} {what}: {_words(answer)}")
        name = f"{job} {what}, a lake of {self._rows:,}"
        held = {"Python": max(seen.python), "JVM": max(seen.jvm)}
        seconds = figure(name, "s", [answer["seconds"] * MILLION / rows])
        return [seconds, *(figure(f"{name}: {part}", "MiB", [size / machine.MIB]) for part, size in held.items())]


def _words(answer: Answer) -> str:
    return ", ".join(f"{name} {value:,.1f}" if isinstance(value, float) else f"{name} {value:,}" for name, value in answer.items())


def _compared(figures: Sequence[Figure], before: int, last: int) -> list[Figure]:
    """The last size compared with the one before: time of a row, and Python's memory, of each job whose work is what is new."""
    found: Mapping[str, Figure] = {one.name: one for one in figures}
    names = [f"{job} of a million rows" for job in ("compact", "metrics")]
    pairs = [(f"{name}{part}", f"{name}, a lake of {{:,}}{part}") for name in names for part in ("", ": Python")]
    return [
        ratio(
            f"{name}: at {last:,} to at {before:,} rows",
            found[form.format(last)].rounds,
            found[form.format(before)].rounds,
            most=STEADY,
        )
        for name, form in pairs
    ]
