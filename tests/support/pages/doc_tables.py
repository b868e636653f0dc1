"""The tables of README and docs that are made from the code: `python -m tests.support.pages.doc_tables` writes them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

from relay import events
from relay.amqp import close_reasons
from relay.config.settings import describe
from relay.events import broker, schedules
from relay.events import contracts as contract_events
from relay.events import inbox as inbox_events
from relay.observability.logs import name_of
from tests import ROOT
from tests.support.faults.observability import signs


def settings() -> str:
    """Every setting with its default and its meaning."""
    rows = (f"| `{row.name}` | {row.default} | {row.meaning} |" for row in describe())
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def packages() -> str:
    """Every package with the first sentence of its docstring and the names of its modules."""
    found = [path.parent for path in sorted(ROOT.glob("relay/**/__init__.py"))]
    rows = (f"| `{package.relative_to(ROOT)}` | {_job(package / '__init__.py')} | {_modules(package)} |" for package in found)
    return "\n".join(["| package | what belongs in it | modules |", "|---|---|---|", *rows])


def event_kinds() -> list[type[events.Event]]:
    """Every kind of event, in the order in which they are written down."""
    found = {**vars(events), **vars(broker), **vars(inbox_events), **vars(contract_events), **vars(schedules)}.values()
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, events.Event)]


def log_lines() -> str:
    """Every event that is written as a log line, with its level, its values and what it tells."""
    kinds = [kind for kind in event_kinds() if kind is not events.Event and kind.level != "none"]
    return "\n".join(["| `event` | `level` | further values | meaning |", "|---|---|---|---|", *map(_log_line, kinds)])


TABLES: Mapping[tuple[str, str], Callable[[], str]] = {
    ("docs/settings.md", "settings"): settings,
    ("docs/architecture.md", "packages"): packages,
    ("docs/operations/logs.md", "log lines"): log_lines,
    ("docs/operations/runbook.md", "signs"): signs,
    ("docs/broker-sentences.md", "broker sentences"): close_reasons.table,
}
"""What stands between `<!-- name -->` and `<!-- /name -->` of a page."""


def written(page: str, name: str) -> str:
    """The table as the page has it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0].strip()


def put(page: str, name: str, text: str) -> None:
    """Put a text between its marks on the page."""
    path = ROOT / page
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    path.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def write() -> None:
    """Put every table into its page."""
    for (page, name), table in TABLES.items():
        put(page, name, table())


def _modules(package: Path) -> str:
    return " ".join(f"`{path.name}`" for path in sorted(package.glob("*.py")) if not path.stem.startswith("_"))


def _job(path: Path) -> str:
    """The first sentence of a module's docstring."""
    return _beginning(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))


def _log_line(kind: type[events.Event]) -> str:
    values = ", ".join(f"`{field.name}`" for field in fields(kind))
    return f"| `{name_of(kind)}` | {kind.level} | {values} | {_beginning(kind.__doc__)} |"


def _beginning(docstring: str | None) -> str:
    """The first paragraph in one line, fit for a table."""
    return " ".join((docstring or "").split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    write()
