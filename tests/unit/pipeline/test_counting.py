"""Which files of a day are counted, and that a day which is counted export by export ends with the numbers of a full count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.metrics import aggregate, file_choice, top_keys
from relay.pipeline.metrics.file_choice import Base, CountingTerms, DayTotals, FileChoice
from relay.pipeline.metrics.top_keys import Limits, Names, Renaming
from tests.support.lake.rows import NOON, row, table

DAY = NOON.date()
END = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(days=1)
TARGET_MS, LIMITS = 10, Limits(exchanges=2, keys=2)
TERMS = CountingTerms(TARGET_MS, LIMITS.exchanges)
Rows = list[dict[str, Any]]


def _file(path: str, rows: int = 2) -> LoggedFile:
    return LoggedFile(path, DAY, rows * 100, rows, None)


A, B, C = _file("a"), _file("b"), _file("c")


def _windows(rows: int, target_ms: int = TARGET_MS, exchanges: int = 1) -> pa.Table:
    return aggregate.count(table(row(number, exchange=f"e{number % exchanges}") for number in range(rows)), target_ms=target_ms)


def _choose(files: Sequence[LoggedFile], base: Base | None, today: date = DAY) -> FileChoice:
    return file_choice.choose(DAY, files, base, today=today, terms=TERMS)


@pytest.mark.parametrize(
    ("messages", "written", "today", "due"),
    [
        (None, None, DAY, True),
        (4, NOON, DAY, False),
        (3, NOON, DAY, True),
        (5, NOON, DAY, True),
        (4, NOON, DAY - timedelta(days=1), False),
        (4, NOON, DAY + timedelta(days=1), True),
        (4, END, DAY + timedelta(days=1), True),
        (4, END + timedelta(minutes=10, microseconds=-1), DAY + timedelta(days=1), True),
        (4, END + timedelta(minutes=10), DAY + timedelta(days=1), False),
        (3, END + timedelta(days=9), DAY + timedelta(days=1), True),
    ],
)
def test_a_day_is_due_until_its_numbers_are_those_of_a_day_that_is_over(
    messages: int | None, written: datetime, today: date, due: bool
) -> None:
    """While other rows are there than were counted, and once more ten minutes after its end."""
    numbers = None if messages is None else DayTotals(messages, written)

    assert due == file_choice.is_due(DAY, [A, B], numbers, today)


def test_of_an_open_day_only_new_files_are_counted() -> None:
    """Its windows count the others; also none is new, as after a run that was killed between the windows and the day."""
    windows = _windows(4)

    assert FileChoice(DAY, [C], windows) == _choose([A, B, C], Base(windows, [A, B]))
    assert FileChoice(DAY, [], windows) == _choose([A, B], Base(windows, [A, B]))
    assert [C] == _choose([A, B, C], Base(windows, [A, B]), today=DAY - timedelta(days=1)).files


@pytest.mark.parametrize(
    ("base", "today"),
    [
        pytest.param(None, DAY, id="nothing is known"),
        pytest.param(Base(_windows(4), [A, B]), DAY + timedelta(days=1), id="the day is over"),
        pytest.param(Base(_windows(2), [A, B]), DAY, id="the version is of another day's count"),
        pytest.param(Base(_windows(6), [A, B]), DAY, id="the windows are of a later count"),
        pytest.param(Base(_windows(4), [A, _file("gone")]), DAY, id="files became others"),
        pytest.param(Base(_windows(4, target_ms=11), [A, B]), DAY, id="another target"),
        pytest.param(Base(pa.concat_tables([_windows(2), _windows(2, target_ms=9)]), [A, B]), DAY, id="two targets"),
        pytest.param(Base(aggregate.empty(), []), DAY, id="no windows"),
        pytest.param(Base(_windows(4, exchanges=3), [A, B]), DAY, id="more exchanges"),
    ],
)
def test_a_day_is_counted_whole_where_anything_else_is_possible(base: Base | None, today: date) -> None:
    """All of its files, and no windows that there are."""
    assert FileChoice(DAY, [A, B, C], None) == _choose([A, B, C], base, today=today)


def test_a_day_that_is_open_keeps_its_names_and_gets_more_while_there_is_room() -> None:
    """Up to the number for each exchange, the busiest first; names beyond it stay."""
    held = Names(frozenset("ac"), frozenset([("a", "x"), ("c", "1"), ("c", "2"), ("c", "3")]))
    named = top_keys.fill(held, [("a", "y"), ("b", "y"), ("a", "z"), ("d", "x"), ("c", "4")], Limits(exchanges=3, keys=2))
    keys = {"a": "xyz", "b": "xy", "c": "1234", "d": "x", "e": "x"}

    assert [
        ("a", "x"), ("a", "y"), ("a", "*other*"), ("b", "*other*"), ("b", "y"),
        ("c", "1"), ("c", "2"), ("c", "3"), ("c", "*other*"), ("*other*", "*other*"), ("*other*", "*other*"),
    ] == _renamed(named, [row(exchange=exchange, routing_key=key) for exchange, names in keys.items() for key in names])  # fmt: skip


def test_an_exchange_that_is_called_like_the_others_counts_with_them() -> None:
    """Otherwise some of its keys would be next to those of the exchanges that are not named."""
    named = top_keys.fill(Names(), [("*other*", "x"), ("a", "y")], LIMITS)

    rows = [row(exchange="*other*", routing_key="x"), row(exchange="a", routing_key="y")]
    assert [("*other*", "*other*"), ("a", "y")] == _renamed(named, rows)


def _renamed(names: Names, rows: Rows) -> list[tuple[str, str]]:
    renamed = Renaming(names).of_rows(table(rows).combine_chunks().to_batches()[0])
    return list(zip(renamed["exchange"].to_pylist(), renamed["routing_key"].to_pylist(), strict=True))


def test_numbers_say_what_they_name() -> None:
    """They name each exchange and each pair once, without the names for the others. An exchange is named even if none of its keys is."""
    rows = [row(1), row(2, at=NOON + timedelta(hours=1)), row(3, routing_key="*other*"), row(4, exchange="", routing_key="")]
    rows += [row(5, exchange="*other*", routing_key="*other*"), row(6, exchange="mail", routing_key="*other*")]

    expected = Names(frozenset(["shop", "", "mail"]), frozenset([("shop", "order"), ("", "")]))
    assert expected == top_keys.of_numbers(aggregate.count(table(rows), target_ms=TARGET_MS))


class _Lake(NamedTuple):
    """A day in the lake, as runs without Spark leave it."""

    files: list[tuple[LoggedFile, Rows]]
    counted: int
    windows: pa.Table

    @property
    def rows(self) -> Rows:
        return [one for _, some in self.files for one in some]

    def grown(self, rows: Rows) -> _Lake:
        return self._replace(files=[*self.files, (_file(f"exported after {len(self.rows)}", len(rows)), rows)])

    def compacted(self) -> _Lake:
        return self._replace(files=[(_file(f"compacted {len(self.rows)}", len(self.rows)), self.rows)])

    def run(self, known: Sequence[LoggedFile], today: date = DAY) -> _Lake:
        """The lake after a run that takes `known` for what the windows count."""
        files = [file for file, _ in self.files]
        count = file_choice.choose(DAY, files, Base(self.windows, known), today=today, terms=TERMS)
        rows = [one for file, some in self.files if file in count.files for one in some]
        held = aggregate.empty() if count.windows is None else count.windows
        counted = _counted(rows, top_keys.of_numbers(held))
        return _Lake(self.files, len(files), aggregate.merge(pa.concat_tables([held, counted])))


def _counted(rows: Rows, named: Names = Names()) -> pa.Table:  # noqa: B008 - it cannot change
    messages = Counter((one["exchange"], one["routing_key"]) for one in rows)
    totals = Counter(one["exchange"] for one in rows)
    busiest = sorted(messages, key=lambda pair: (-totals[pair[0]], pair[0], -messages[pair], pair[1]))
    names = Renaming(top_keys.fill(named, busiest, LIMITS))
    renamed = [names.of_rows(batch) for batch in table(rows).combine_chunks().to_batches()]
    return aggregate.add_up(aggregate.count(batch, target_ms=TARGET_MS) for batch in renamed)


def _of_all(windows: pa.Table) -> pa.Table:
    """The windows without their names."""
    for name in ("exchange", "routing_key"):
        names = pa.array(["any"] * windows.num_rows, pa.string())
        windows = windows.set_column(windows.schema.get_field_index(name), name, names)
    return aggregate.merge(windows)


ROW = st.builds(
    lambda number, minutes, names, latency, is_dead: (
        row(number, at=NOON + timedelta(minutes=minutes), exchange=names[0], routing_key=names[1], wait=latency)
        | ({"result": "failed", "error_code": "nack", "confirmed_at": None} if is_dead else {})
    ),
    st.integers(0, 99),
    st.sampled_from([-700, -6, 0, 1, 6, 700]),
    st.tuples(st.sampled_from(["", "shop", "mail", "*other*"]), st.sampled_from(["a", "b", "c", "*other*", "ö"])),
    st.floats(0, 1e8),
    st.booleans(),
)  # fmt: skip
STEP = st.tuples(st.lists(ROW, min_size=1, max_size=8), st.sampled_from(["run", "run", "no run", "compact", "lost version"]))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=5))
def test_any_exports_and_runs_of_a_day_add_up_to_a_full_count(steps: list[tuple[Rows, str]]) -> None:
    """After each run by window, whatever happened before and of few exchanges; when the day is over the table is that of a full count."""
    lake = _Lake([], 0, aggregate.empty())
    for rows, what in steps:
        lake = lake.grown(rows)
        known = [] if what == "lost version" else [file for file, _ in lake.files[: lake.counted]]
        if what == "compact":
            lake = lake.compacted()
        if what != "no run":
            lake = lake.run(known)
            assert _of_all(aggregate.count(table(lake.rows), target_ms=TARGET_MS)).equals(_of_all(lake.windows))
            assert len(top_keys.of_numbers(lake.windows).exchanges) <= LIMITS.exchanges

    assert _counted(lake.rows).equals(lake.run([], today=DAY + timedelta(days=1)).windows)
