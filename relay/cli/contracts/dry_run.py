"""Tries a contract on archived messages: counts the messages that would break it, by place and rule."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from relay.cli.common.output import count, show_table
from relay.cli.common.support import complain
from relay.contracts.patterns import Patterns
from relay.contracts.registry import CompiledContract, breaches
from relay.contracts.violation import Violation

SHOWN_IDS = 3
"""How many messages are named for each place and rule."""
_INDEX = re.compile(r"/[0-9]+(?=/|$)")
PROGRESS_SECONDS = 5.0
"""Seconds between two lines of progress if there is no terminal."""


@dataclass
class Trial:
    """The result of a trial; its fields are those of the JSON."""

    exchange: str
    routing_key: str
    messages: int = 0
    would_fail: int = 0
    limited: bool = False
    violations: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def run(self, rows: Iterable[Mapping[str, Any]], held: Sequence[CompiledContract], limit: int) -> None:
        """Check up to `limit` archived messages whose routing key matches."""
        last_report, patterns = time.monotonic(), Patterns([self.routing_key])
        for row in rows:
            if not patterns.matching(row["routing_key"]):
                continue
            if self.messages == limit:
                self.limited = True
                break
            self._check(row, held)
            if self.messages % 1000 == 0:
                last_report = _report_progress(self.messages, last_report)
        if sys.stderr.isatty():
            typer.echo("\r\033[K", err=True, nl=False)
        self.violations.sort(key=lambda found: -found["messages"])

    def _check(self, row: Mapping[str, Any], held: Sequence[CompiledContract]) -> None:
        self.messages += 1
        found = breaches(held, None if row["binary"] else row["content"])
        self.would_fail += bool(found)
        for _, violation in found:
            self._count(violation, row["id"])

    def _count(self, violation: Violation, message: str) -> None:
        """Add to the violations of the same place and rule; items of an array count as one place."""
        key = (_INDEX.sub("/*", violation.pointer), violation.rule)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {"pointer": key[0], "rule": key[1], "reason": violation.reason, "messages": 0, "ids": []}
            self.violations.append(known)
        known["messages"] += 1
        if len(known["ids"]) < SHOWN_IDS:
            known["ids"].append(message)

    def show(self) -> None:
        """Print the result, human-readable."""
        typer.echo(
            f"{self.would_fail} of {count(self.messages, 'message')} would fail" + (" (--limit was reached)" if self.limited else "")
        )
        if self.violations:
            rows = [{**found, "ids": " ".join(found["ids"]), "pointer": found["pointer"] or "(top)"} for found in self.violations]
            show_table(rows, ["messages", "pointer", "rule", "reason", "ids"], nothing="")


def _report_progress(done: int, last_report: float) -> float:
    """Count up on a terminal, else print a line every few seconds; the argument and the result are times of the last report."""
    if sys.stderr.isatty():
        typer.echo(f"\r{count(done, 'message')}", err=True, nl=False)
    elif time.monotonic() - last_report >= PROGRESS_SECONDS:
        complain(f"{count(done, 'message')} so far.")
        return time.monotonic()
    return last_report
