"""Write `docs/faults.md` from the runs of the long form: `python -m tests.support.faults.docs_table build/faults.jsonl`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.support.faults.catalogue import MENU
from tests.support.faults.runner import LEDGER, Line, lines

PAGE = ROOT / "docs" / "faults.md"
HEAD = (
    "| # | fault | runs | failed | faults | messages | lost | phantom | order breaks | duplicates | in flight | longest recovery |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)
SUMMED = ("faults", "committed", "lost", "phantom", "order_breaks", "duplicates", "in_flight")


def table(runs: Sequence[Line]) -> str:
    """One row for each fault of the menu, and the sum of all; every run in the file counts, one that was played again too."""
    rows = [_row(str(number), fault, [run for run in runs if run["fault"] == number]) for number, fault in MENU.items()]
    return "\n".join([HEAD, *rows, _row("", "**all**", runs)])


def versions(runs: Sequence[Line]) -> str:
    """What was tested, each version once."""
    return ", ".join(sorted({f"{name} {version}" for run in runs for name, version in run.get("versions", {}).items()}))


def write(path: Path) -> None:
    """Put the table between its marks."""
    runs = lines(path)
    for name, text in (("runs", table(runs)), ("versions", versions(runs))):
        before, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        PAGE.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def _row(number: str, fault: str, runs: Sequence[Line]) -> str:
    played = [run for run in runs if run["outcome"] != "skipped"]
    if not played:
        return f"| {number} | {fault} | not run | | | | | | | | | |"
    ledgers = [run[LEDGER] for run in played if LEDGER in run]
    failed = sum(run["outcome"] != "passed" for run in played)
    sums = [f"{sum(ledger[name] for ledger in ledgers):,}" if ledgers else "" for name in SUMMED]
    recovery = max((ledger["recovery_seconds"] for ledger in ledgers if ledger["recovery_seconds"] is not None), default=None)
    longest = f"{recovery:.1f} s" if recovery else ""
    return f"| {' | '.join([number, fault, str(len(played)), str(failed), *sums, longest])} |"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
