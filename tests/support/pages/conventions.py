"""The record of documented behaviours: which tests prove which id, and which id has none (option --conventions)."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

OWED = Path(__file__).with_name("conventions.txt")
_ID = re.compile(r"[A-E]\d+")


def owed_ids(text: str) -> list[str]:
    """Return the ids that the text lists; a line that begins with # is a comment."""
    return [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]


def in_order(ids: set[str]) -> list[str]:
    """Sort ids by letter, then by number."""
    return sorted(ids, key=lambda name: (name[0], int(name[1:])))


class Record:
    """What was collected for each id, and how it went."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)
        self.outcomes: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Note the ids of each test, and leave only tests that have some."""
        for item in items:
            for name in ids_of(item):
                self.tests[name].append(item.nodeid)
        chosen = [item for item in items if ids_of(item)]
        config.hook.pytest_deselected(items=[item for item in items if not ids_of(item)])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of set-up, call and clean-up."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each id, its tests, and what became of them; then the ids without a test."""
        owed = owed_ids(OWED.read_text())
        terminalreporter.section("documented behaviours")
        for name in in_order({*self.tests}):
            for test in self.tests[name]:
                terminalreporter.write_line(f"{name:4} {self.outcomes.get(test, 'not run'):8} {test}")
        missing = [name for name in owed if name not in self.tests]
        terminalreporter.write_line(f"without a test ({len(missing)} of {len(owed)}): {' '.join(missing) or 'none'}")


def ids_of(item: pytest.Item) -> list[str]:
    """Return the ids that a test claims to prove.

    Raises:
        pytest.UsageError: one does not look like an id, such as A1 or C18.
    """
    ids = [str(name) for marker in item.iter_markers("ids") for name in marker.args]
    for name in ids:
        if not _ID.fullmatch(name):
            message = f"{item.nodeid}: {name!r} is no id; write it like A1"
            raise pytest.UsageError(message)
    return ids


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--conventions", action="store_true", help="run the tests that prove documented behaviours, and print which is proved by which"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep a record where it is asked for."""
    if config.getoption("--conventions"):
        config.pluginmanager.register(Record())
