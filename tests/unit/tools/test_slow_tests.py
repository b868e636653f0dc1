"""Slow tests take turns: none is left out of every part, and the parts take about the same time."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.slow_tests import NOTED, PARTS, SLOW, left_out, noted, slow_among, today

SECONDS: dict[str, float] = json.loads(NOTED.read_text())
TIMES = st.dictionaries(st.text(), st.floats(SLOW, 300))


@given(TIMES, st.integers(1, 5))
def test_each_slow_test_is_in_one_part(seconds: dict[str, float], parts: int) -> None:
    """Whatever its name and its time."""
    of_each = [seconds.keys() - left_out(seconds, (number, parts)) for number in range(1, parts + 1)]

    assert sorted(seconds) == sorted(name for part in of_each for name in part)


def test_what_is_quick_always_runs() -> None:
    """Unless it is in a folder whose tests start processes of their own."""
    names = ["tests/unit/test_a.py::test_quick", "tests/unit/test_a.py::test_slow", "tests/faults/test_b.py::test_new"]

    assert {names[1]: 9.0, names[2]: SLOW} == slow_among(names, {names[1]: 9.0, "tests/unit/test_gone.py::test_gone": 5.0})


def test_the_parts_take_about_the_same_time() -> None:
    """A tenth more or less."""
    times = [sum(SECONDS.values()) - sum(SECONDS[name] for name in left_out(SECONDS, (number, PARTS))) for number in range(1, PARTS + 1)]

    assert max(times) < 1.2 * min(times)


def test_the_parts_follow_each_other_from_day_to_day() -> None:
    """So that each test runs within four days."""
    days = [date(2026, 12, 30) + timedelta(number) for number in range(PARTS)]

    assert {f"{number}/{PARTS}" for number in range(1, PARTS + 1)} == {today(day) for day in days}


def test_a_test_that_did_not_run_keeps_its_time() -> None:
    """One that has become fast is forgotten, one that has become slow is noted."""
    assert {"new": 5.0, "other": 7.0} == noted({"fast now": 9.0, "other": 7.0}, {"fast now": 0.9, "new": 5.04, "quick": 0.1})


@pytest.mark.parametrize("path", sorted({name.split("::")[0] for name in SECONDS}))
def test_each_noted_test_is_in_a_file_that_exists(path: str) -> None:
    """Else it was moved, and always runs."""
    assert (ROOT / path).is_file()
