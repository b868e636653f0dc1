"""The tables of README and docs that are made from the code: `python -m tests.support.pages.doc_tables` writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from relay import events
from relay.amqp import close_reasons
from relay.config.settings import POLICY, describe
from relay.events import broker, schedules
from relay.events import contracts as contract_events
from relay.events import inbox as inbox_events
from relay.observability.logs import name_of
from tests import ROOT
from tests.support.faults.observability import signs

DATABASE_ALONE: Mapping[str, str] = {
    "export_registered": "Retention drops only days whose export was verified",
    "lake_seen_hours": "How many hours a check of the lake counts; if the last one is older, retention drops nothing",
    "lake_reread_days": "Days within which the pipeline reads each file of the lake again",
}
"""The meaning of the settings that have no variable."""
_RULE = re.compile(r"\('(\w+)',\s*'([^']*)',\s*'\w+',\s*(\w+),\s*(\w+),\s*(?:NULL|ARRAY\[([^\]]*)\])")


def settings() -> str:
    """Every setting that a process reads from its environment, with its default and its meaning."""
    rows = [(_variables(row.variable, file=row.secret), row.default, row.meaning) for row in describe() if row.name not in POLICY]
    return _table("variable", rows)


def database_settings() -> str:
    """Every setting that the newest migration knows, with its default and its meaning."""
    described = {row.name: (row.default, row.meaning) for row in describe()}
    return _table("setting", [(f"`{name}`", *(described.get(name) or _alone(name, rule))) for name, rule in rules().items()])


def rules() -> dict[str, tuple[str, ...]]:
    """Default, lowest and highest value, and words of every setting of the database, by name."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("sql/[0-9]*.sql")))
    *_, newest = (text for text in texts if "FUNCTION @schema@.queue_message_setting_rule()" in text)
    body = newest.partition("FUNCTION @schema@.queue_message_setting_rule()")[2].partition("$body$;")[0]
    return {name: tuple(rule) for name, *rule in _RULE.findall(body)}


def _alone(name: str, rule: tuple[str, ...]) -> tuple[str, str]:
    default, low, high, words = rule
    allowed = words.replace("'", "").replace(",", " or") if words else f"a whole number from {low} to {high}"
    return f"`{default}`", f"{DATABASE_ALONE[name]} ({allowed})"


def _variables(name: str, *, file: bool) -> str:
    return f"`{name}`, `{name}_FILE`" if file else f"`{name}`"


def _table(first: str, rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([f"| {first} | default | meaning |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


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
    ("docs/settings.md", "settings of the database"): database_settings,
    ("docs/architecture.md", "packages"): packages,
    ("docs/operations/logs.md", "log lines"): log_lines,
    ("docs/operations/runbook.md", "signs"): signs,
    ("docs/broker-sentences.md", "broker sentences"): close_reasons.table,
}
"""The text between `<!-- name -->` and `<!-- /name -->` of a page."""


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
