"""The tables of docs/mutants.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests import ROOT
from tests.mutants.runner import Mutant, Verdict

PAGE = ROOT / "docs" / "mutants.md"
HEAD = "| safeguard | switched off in | turns red | after |\n|---|---|---|---|"
SURVEY_HEAD = "| module | mutants | noticed | by time | survive |\n|---|---|---|---|---|"
SURVIVORS_HEAD = "| module | what survives | why that is right |\n|---|---|---|"


class Survivor(NamedTuple):
    """A change that no test notices, and why none need."""

    lines: str
    reason: str


class Surveyed(NamedTuple):
    """What became of all mutants of a module."""

    name: str
    mutants: int
    killed: int
    timeouts: int
    survivors: list[Survivor]


def write(verdicts: Sequence[Verdict], mutants: Sequence[Mutant]) -> None:
    """Put what a run saw into the page; the rows of mutants that it left out stay as they are."""
    seen = {row_of(verdict.mutant): f"{verdict.seconds:.1f}" for verdict in verdicts}
    times = {**_times(), **seen}
    rows = [f"{row} | {times[row]} s |" for row in map(row_of, mutants) if row in times]
    total = sum(float(times[row]) for row in map(row_of, mutants) if row in times)
    table = "\n".join([HEAD, *rows])
    _between("mutants", f"{table}\n\n{len(rows)} mutants, {total:.0f} s if one comes after the other.\n")


def rows() -> list[str]:
    """The rows on the page, but for their seconds."""
    return [*_times()]


def write_survey(modules: Sequence[Surveyed]) -> None:
    """Put what a survey saw into the page: figures, and each survivor with its reason."""
    rows = [f"| `{module.name}` | {module.mutants} | {module.killed} | {module.timeouts} | {len(module.survivors)} |" for module in modules]
    survivors = [f"| `{module.name}` | {_code(lines)} | {reason} |" for module in modules for lines, reason in module.survivors]
    figures, list_ = "\n".join([SURVEY_HEAD, *rows]), "\n".join([SURVIVORS_HEAD, *survivors])
    _between("survey", f"{figures}\n\n{list_}\n")


def row_of(mutant: Mutant) -> str:
    """A mutant's row, but for the seconds that it took."""
    file, _, test = mutant.test.partition("::")
    return f"| {mutant.name} | `{mutant.file}` | `{test}` in `{file}`"


def _times() -> dict[str, str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.rpartition(" | ") for line in lines if line.endswith(" s |")]
    return {row: seconds.removesuffix(" s |") for row, _, seconds in cells}


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _between(name: str, text: str) -> None:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
