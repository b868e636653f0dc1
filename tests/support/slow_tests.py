"""Slow tests take turns: with TEST_PART=2/4 only the second quarter of them runs, and every other test; by default all do.

Slow is what starts processes of its own (the folders in `TURNS`), and what `tests/slow_tests.json` names: `--write-slow-tests` writes it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

NOTED = Path(__file__).parents[1] / "slow_tests.json"
"""Seconds by node id."""
SLOW = 1.0
"""Seconds from which a test takes turns: one test in ten takes longer, and they take nine tenths of the time."""
TURNS = tuple(f"tests/{folder}/" for folder in ("acceptance", "compatibility", "examples", "faults", "pipeline", "security"))
"""Folders whose tests start relays, brokers, Spark or other languages: each takes turns, and counts as much as was noted or that time."""
PARTS = 4
PART = "TEST_PART"
"""A part such as 2/4, or `today` for the part whose day it is."""

Part = tuple[int, int]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that notes how long tests take."""
    parser.addoption("--write-slow-tests", action="store_true", help=f"note in {NOTED.name} which tests take {SLOW:g} seconds or more")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the part for all processes of the run, which may pass midnight."""
    if os.environ.get(PART) == "today":
        os.environ[PART] = today(datetime.now(UTC).date())
    if config.getoption("--write-slow-tests") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch(), "slow_tests_stopwatch")


def pytest_report_header() -> str | None:
    """Say what is left out."""
    part = _part()
    return f"slow tests: part {part[0]} of {part[1]}; all of them with `make test-all`" if part else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of the other parts."""
    if (part := _part()) is None:
        return
    out = left_out(slow_among([item.nodeid for item in items], json.loads(NOTED.read_text())), part)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


def today(day: date) -> str:
    """The part whose turn it is; they follow each other from day to day."""
    return f"{day.toordinal() % PARTS + 1}/{PARTS}"


def slow_among(names: Iterable[str], seconds: Mapping[str, float]) -> dict[str, float]:
    """Those of the tests that take turns, with about their seconds."""
    return {name: seconds.get(name, SLOW) for name in names if name in seconds or name.startswith(TURNS)}


def left_out(seconds: Mapping[str, float], part: Part) -> set[str]:
    """Node ids of the tests that belong to another part: from the slowest on, each goes to the part that takes the least time so far."""
    number, parts = part
    taken = [0.0] * parts
    out = set()
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        least = taken.index(min(taken))
        taken[least] += seconds[name]
        if least != number - 1:
            out.add(name)
    return out


def noted(before: Mapping[str, float], took: Mapping[str, float]) -> dict[str, float]:
    """What is noted after a run that took so long: tests that did not run keep their time."""
    slow = {**before, **{name: round(seconds, 1) for name, seconds in took.items()}}
    return {name: slow[name] for name in sorted(slow) if slow[name] >= SLOW}


def _part() -> Part | None:
    text = os.environ.get(PART, "")
    if text in {"", "all"}:
        return None
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"{PART} is a part such as 2/{PARTS}, today or all, not {text!r}.")
    return int(number), int(parts)


class _Stopwatch:
    """Adds up how long each test takes, with what it sets up."""

    def __init__(self) -> None:
        self._took: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self._took[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Note the slow ones."""
        before: dict[str, float] = json.loads(NOTED.read_text()) if NOTED.exists() else {}
        NOTED.write_text(json.dumps(noted(before, self._took), indent=0) + "\n")
