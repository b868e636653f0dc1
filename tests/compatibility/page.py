"""Writes docs/compatibility.md from what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from tests import ROOT
from tests.compatibility.cells import SUITES, Line
from tests.compatibility.servers import POSTGRES, RABBITMQ

PAGE = ROOT / "docs" / "compatibility.md"
START, END = "<!-- compatibility -->", "<!-- /compatibility -->"
NOT_RUN = "not run"


def table(results: Sequence[Line], before: str = "") -> str:
    """One row a pair of versions: of each suite the newest result, passed / failed / skipped; what has none stays as it was `before`."""
    head = ["PostgreSQL", "RabbitMQ", *SUITES, "date", "commit"]
    rows = [_row(major, version, results, _known(before, major, version)) for major, version in product(POSTGRES, RABBITMQ)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def write(results: Sequence[Line]) -> None:
    """Put the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    start, _, rest = text.partition(START)
    before, _, end = rest.partition(END)
    PAGE.write_text(f"{start}{START}\n{table(results, before)}\n{END}{end}", encoding="utf-8")


def _known(before: str, major: str, version: str) -> Mapping[str, str]:
    """The row of a pair in an earlier table, by column."""
    head, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in before.splitlines() if line.startswith("|")] or [[]]
    mine = (row for row in rows if f"{row[0]}.".startswith(f"{major}.") and f"{row[1]}.".startswith(f"{version}."))
    return dict(zip(head, next(mine, []), strict=False))


def _row(major: str, version: str, results: Sequence[Line], known: Mapping[str, str]) -> list[str]:
    newest = {line["suite"]: line for line in results if (line["major"], line["series"]) == (major, version)}
    shown = {"PostgreSQL": major, "RabbitMQ": version, **dict.fromkeys(SUITES, NOT_RUN), "date": "", "commit": "", **known}
    for suite, line in newest.items():
        shown |= {"PostgreSQL": line["postgres"], "RabbitMQ": line["rabbitmq"], suite: _counts(line)}
    shown |= {name: ", ".join(sorted({*_parts(shown[name]), *(line[name] for line in newest.values())})) for name in ("date", "commit")}
    return [shown[name] for name in ("PostgreSQL", "RabbitMQ", *SUITES, "date", "commit")]


def _parts(cell: str) -> list[str]:
    return cell.split(", ") if cell else []


def _counts(line: Line) -> str:
    return f"{line['passed']} / {line['failed']} / {line['skipped']}"
