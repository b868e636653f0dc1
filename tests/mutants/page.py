"""The table of docs/mutants.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutants.runner import ROOT, Mutant, Verdict

PAGE = ROOT / "docs" / "mutants.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->"
HEAD = "| safeguard | switched off in | turns red | after |\n|---|---|---|---|"


def write(verdicts: Sequence[Verdict], seconds: float) -> None:
    """Put what a run saw into the page, and how long it took."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join([HEAD, *(f"{row_of(verdict.mutant)} | {verdict.seconds:.1f} s |" for verdict in verdicts)])
    PAGE.write_text(f"{before}{BEGIN}{table}\n\n{len(verdicts)} mutants, {seconds:.0f} s in all.\n{END}{after}", encoding="utf-8")


def row_of(mutant: Mutant) -> str:
    """A mutant's row, but for the seconds that it took."""
    file, _, test = mutant.test.partition("::")
    return f"| {mutant.name} | `{mutant.file}` | `{test}` in `{file}`"
