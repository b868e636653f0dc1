"""The table of docs/compatibility.md: what it says of results, and that it never takes what was not run for passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.cells import SUITES, counts
from tests.compatibility.page import PAGE, table
from tests.compatibility.servers import POSTGRES, RABBITMQ

PAIR = {"major": "16", "series": "4.0", "postgres": "16.14", "rabbitmq": "4.0.5"}
RUN = {**PAIR, "suite": "contract", "passed": 9, "failed": 0, "skipped": 1, "commit": "c1", "date": "2026-01-02", "names": []}
THREE = """<testsuites><testsuite>
    <testcase classname='a' name='b'/><testcase><skipped/></testcase><testcase classname='c' name='d'><error/></testcase>
    </testsuite></testsuites>
"""


def row(*lines: dict[str, object]) -> str:
    """The row of PostgreSQL 16 and RabbitMQ 4.0."""
    rows = table(lines).splitlines()
    assert 2 + len(POSTGRES) * len(RABBITMQ) == len(rows)
    return rows[2 + 1 * len(RABBITMQ) + 1]


def test_a_pair_without_a_result_is_not_run() -> None:
    """Nothing is taken for granted."""
    assert f"| 16 | 4.0 | {' | '.join(['not run'] * len(SUITES))} |  |  |" == row()


def test_the_newest_result_of_each_suite_counts() -> None:
    """A failure is shown until a later run has passed; another suite stays not run."""
    failed = {**RUN, "failed": 2}
    assert f"| 16.14 | 4.0.5 | 9 / 0 / 1 | {' | '.join(['not run'] * (len(SUITES) - 1))} | 2026-01-02 | c2 |" == row(
        failed, {**RUN, "commit": "c2"}
    )
    assert "| 9 / 2 / 1 |" in row(RUN, failed)


@pytest.mark.parametrize(
    ("report", "found"),
    [(None, (0, 1, 0)), ("<testsuites><testsuite/></testsuites>", (0, 1, 0)), (THREE, (1, 1, 1))],
)
def test_a_run_that_ran_no_test_has_failed(report: str | None, found: tuple[int, int, int], tmp_path: Path) -> None:
    """Whether it wrote no report, or an empty one."""
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    counted = counts(path)
    assert found == (counted["passed"], counted["failed"], counted["skipped"])


def test_the_page_has_every_pair() -> None:
    """It is written by the run, and has the form of today's versions."""
    text = PAGE.read_text(encoding="utf-8")
    header, _, *rows = table([]).splitlines()
    assert header in text
    assert len(rows) == sum(line.startswith("| 1") for line in text.splitlines())
