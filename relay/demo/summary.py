"""The summary: the numbers of the ledger with their expected values, and one dead message explained."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from relay.demo import ledger
from relay.demo.ledger import Report
from relay.demo.scenes.stage import Check
from relay.demo.story import RECOVERY_SECONDS
from relay.demo.verdict import promise, table


def mismatches(report: Report) -> list[str]:
    """One sentence for each number that is wrong after a demo."""
    found = report.mismatches(recovery_limit=RECOVERY_SECONDS)
    if not report.in_flight:
        found.append("No relay was killed while it held messages.")
    return found


def sums(report: Report) -> Table:
    """Where the committed messages are."""
    made = table("each committed message, joined by id", "messages")
    made.add_row("committed by the shop", f"{report.committed}")
    for text, number in (("= delivered", report.delivered), ("+ dead", report.dead), ("+ waiting", report.waiting)):
        made.add_row(text, f"{number}")
    made.add_section()
    made.add_row("rolled back or refused", f"{report.rolled_back}")
    return made


def promises(report: Report) -> Table:
    """The promises, each with the number that was found."""
    made = table("what the relay promises", "found", "must be")
    for text, found, limit in _promises(report):
        promise(made, text, found, limit)
    return made


def dead_by_reason(folder: Path) -> Table:
    """Dead messages counted by result and code."""
    rows = [row for row in archived(folder) if row["result"] != "success"]
    counts = Counter((row["result"], row.get("error_code") or "") for row in rows)
    made = table("dead messages by result and code", "messages")
    for (result, code), count in sorted(counts.items()):
        made.add_row(result if code == result else f"{result}, {code}", f"{count}")
    return made


def one_of_each(checks: Sequence[Check]) -> Table:
    """The findings of the scenes after the shop."""
    made = table("one of each: what else it does", "found", "must be")
    for words, found, must_be in checks:
        made.add_row(words, f"{found}", f"{must_be}", style=None if found == must_be else "bold red")
    return made


def otherwise(checks: Sequence[Check]) -> list[str]:
    """One sentence for each check that has found another number than expected."""
    return [f"{words}: {found}; it must be {must_be}." for words, found, must_be in checks if found != must_be]


def archived(folder: Path) -> list[dict[str, str | None]]:
    """Rows of the archive in a ledger that was checked."""
    return [json.loads(line) for line in (folder / ledger.ARCHIVE).read_text(encoding="utf-8").splitlines()]


def _promises(report: Report) -> list[tuple[str, float, int]]:
    return [
        ("lost", len(report.lost), 0),
        ("phantoms, of transactions that were rolled back", len(report.phantom), 0),
        ("success without a delivery", len(report.success_without_delivery), 0),
        ("delivered, and archived otherwise or not at all", len({*report.delivered_not_success, *report.unarchived}), 0),
        ("archived twice", len(report.archived_twice), 0),
        ("another result than the shop expects", len(report.unexpected_result), 0),
        ("delivered before they were due", len(report.early), 0),
        ("order breaks within a key", len(report.order_breaks), 0),
        ("duplicates of messages in flight at the kill", report.duplicates, report.in_flight),
        ("duplicates of other messages", len(report.unexplained), 0),
        ("seconds from the kill until its last message is settled", report.recovery_seconds or 0.0, RECOVERY_SECONDS),
    ]
