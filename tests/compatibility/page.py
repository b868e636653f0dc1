"""Writes docs/compatibility.md from what was run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tests.compatibility.cells import SUITES, Line
from tests.compatibility.servers import POSTGRES, RABBITMQ
from tests.support.doc_tables import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
START, END = "<!-- compatibility -->", "<!-- /compatibility -->"
NOT_RUN = "not run"


def table(results: Sequence[Line]) -> str:
    """One row a pair of versions: of each suite the newest result, passed / failed / skipped."""
    head = ["PostgreSQL", "RabbitMQ", *SUITES, "date", "commit"]
    rows = [_row(major, version, results) for major, version in product(POSTGRES, RABBITMQ)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def write(results: Sequence[Line]) -> None:
    """Put the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{table(results)}\n{END}{after}", encoding="utf-8")


def _row(major: str, version: str, results: Sequence[Line]) -> list[str]:
    newest = {line["suite"]: line for line in results if (line["major"], line["series"]) == (major, version)}
    if not newest:
        return [major, version, *[NOT_RUN] * len(SUITES), "", ""]
    last = [*newest.values()][-1]
    dates, commits = (_all_of(newest, name) for name in ("date", "commit"))
    return [last["postgres"], last["rabbitmq"], *(_counts(newest.get(suite)) for suite in SUITES), dates, commits]


def _all_of(newest: dict[str, Line], name: str) -> str:
    return ", ".join(sorted({line[name] for line in newest.values()}))


def _counts(line: Line | None) -> str:
    return NOT_RUN if line is None else f"{line['passed']} / {line['failed']} / {line['skipped']}"
