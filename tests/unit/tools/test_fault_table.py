"""The table of faults, from the file of runs."""

from __future__ import annotations

from typing import Any

from tests.support.faults.catalogue import MENU
from tests.support.faults.docs_table import HEAD, SUMMED, table, versions
from tests.support.faults.runner import LEDGER


def a_run(fault: int, outcome: str = "passed", recovery: float | None = None, **ledger: int) -> dict[str, Any]:
    """One line of the file."""
    numbers = {**dict.fromkeys(SUMMED, 0), **ledger, "recovery_seconds": recovery}
    return {"fault": fault, "test": f"t{fault}", "outcome": outcome, LEDGER: numbers, "versions": {"PostgreSQL": "15.1"}}


def test_the_table_sums_what_was_run_and_names_what_was_not() -> None:
    """Runs of one fault are one row, with failures counted and the longest recovery. A fault that was skipped was not run."""
    runs = [
        a_run(1, faults=4, committed=1200, duplicates=3, in_flight=9, recovery=3.21),
        a_run(1, "failed", faults=1, committed=300, lost=1, recovery=7.55),
        {"fault": 9, "test": "t9", "outcome": "skipped"},
        {"fault": 2, "test": "t2", "outcome": "error"},
    ]

    rows = table(runs).splitlines()

    assert rows[:2] == HEAD.splitlines()
    assert len(rows) == 2 + len(MENU) + 1
    assert rows[2] == f"| 1 | {MENU[1]} | 2 | 1 | 5 | 1,500 | 1 | 0 | 0 | 3 | 9 | 7.5 s |"
    assert rows[3] == f"| 2 | {MENU[2]} | 1 | 1 |  |  |  |  |  |  |  |  |"
    assert rows[10] == f"| 9 | {MENU[9]} | not run | | | | | | | | | |"
    assert rows[-1].startswith("|  | **all** | 3 | 2 | 5 | 1,500 | 1 |")
    assert versions(runs) == "PostgreSQL 15.1"
