"""The long form of the fault tests: each as often as its marker says, noted in a file, and gone on with where it was cut short.

`@pytest.mark.fault(7, repeats=20)` names the fault of `fault_menu` that a test plays. `pytest --fault-runs FILE` plays each test that
often, and appends a line for each run to FILE; what passed there with the same commit is not played again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from relay.demo.ledger import Report
from tests.support.faults.catalogue import MENU

LEDGER = "ledger"
"""Name of the property under which a test leaves what its ledgers said."""
Line = Mapping[str, Any]


def numbers(report: Report) -> dict[str, float | None]:
    """What a ledger said, in numbers."""
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return {name: len(value) if isinstance(value, tuple) else value for name, value in values.items()}


def lines(path: Path) -> list[Line]:
    """The runs in a file, none if there is no such file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


class Runs:
    """Notes each run, and leaves out those that stand in the file.

    Args:
        path: of the file.
        commit: what is tested.

    """

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._number: dict[str, int] = {}
        self._left = 0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Play a test as often as its marker says."""
        for marker in metafunc.definition.iter_markers("fault"):
            metafunc.fixturenames.append("repeat")
            metafunc.parametrize("repeat", range(1, marker.kwargs.get("repeats", 1) + 1))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave faults only, without those that passed already; first each once, then each again, so that a part is a sample of all."""
        self._number = {item.nodeid: number for item in items if (number := number_of(item))}
        done = {line["test"] for line in lines(self._path) if line["outcome"] == "passed" and line["commit"] == self._commit}
        wanted = [item for item in items if item.nodeid in self._number and item.nodeid not in done]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = sorted(wanted, key=_repeat)
        self._left = len(wanted)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a run that has ended, or never began."""
        if report.when != "call" and report.outcome == "passed":
            return
        kept = {name: value for name, value in report.user_properties if name in {LEDGER, "seed", "versions"}}
        outcome = report.outcome if report.when == "call" or report.outcome == "skipped" else "error"
        line = {"fault": self._number.get(report.nodeid), "test": report.nodeid, "commit": self._commit, "outcome": outcome}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "seconds": round(report.duration, 1), **kept}) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, Any, Any]:
        """Say how many are left."""
        category, letter, word = yield
        if report.when == "call":
            self._left -= 1
            word = f"{word[0] if isinstance(word, tuple) else word}, {report.duration:.0f} s, {self._left} runs left"
        return category, letter, word


def _repeat(item: pytest.Item) -> int:
    given: Mapping[str, Any] = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return int(given.get("repeat", 1))


def number_of(item: pytest.Item) -> int | None:
    """The fault that a test plays, None if it plays none.

    Raises:
        pytest.UsageError: there is no such fault.
    """
    for marker in item.iter_markers("fault"):
        [number] = marker.args
        if number not in MENU:
            message = f"{item.nodeid}: there is no fault {number} in tests/support/faults/catalogue.py"
            raise pytest.UsageError(message)
        return int(number)
    return None


@pytest.fixture
def long_form(pytestconfig: pytest.Config) -> bool:
    """Whether the long form is played, in which a test may take minutes."""
    return is_long(pytestconfig)


def is_long(config: pytest.Config) -> bool:
    """Whether each fault is played as often and as large as the long form has it, or FAULT_LONG=1 asks for its sizes."""
    return config.getoption("--fault-runs") is not None or os.environ.get("FAULT_LONG") == "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave to the long form what is for it alone, with the reason."""
    if not is_long(item.config) and item.get_closest_marker("long_only"):
        pytest.skip("played in the long form only: make test-faults, or FAULT_LONG=1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--fault-runs", metavar="FILE", type=Path, help="play each fault as often as its marker says, noted in FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Note runs where that is asked for."""
    config.addinivalue_line("markers", "fault(number, repeats=1): the fault of fault_menu that is played, and how often in the long form")
    config.addinivalue_line("markers", "long_only: a fault, or a variant of it, that the long form plays and the short one leaves out")
    if path := config.getoption("--fault-runs"):
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        config.pluginmanager.register(Runs(path, commit or "no checkout"))
