"""The summary: where the rows are, each promise with its violations, and a sentence for each mismatch."""

from __future__ import annotations

from rich.table import Table

from relay.demo.history.ledger import Ledger
from relay.demo.history.sums import Promise, Sums, promises, sums
from relay.demo.verdict import promise, table


def tables(ledger: Ledger) -> list[Table]:
    """The tables of the summary."""
    return [_places(sums(ledger), ledger), _promises(promises(ledger))]


def mismatches(ledger: Ledger) -> list[str]:
    """One sentence for each mismatch."""
    found, rows = [_sentence(one) for one in promises(ledger) if one.broken], sums(ledger)
    if not rows.adds_up:
        found.insert(0, f"{rows.archived} rows were archived, and {_accounted(rows)} of them can be accounted for.")
    if len(set(rows.checksums)) > 1:
        found.append("The content checksum of the lake's rows is not that of the rows as they were archived.")
    if not (ledger.lake and ledger.replayed and ledger.outcome["dropped"] and rows.kept):
        found.append("Nothing was exported, dropped, kept or replayed; run the demo again.")
    return found


def _places(rows: Sums, ledger: Ledger) -> Table:
    made = table("each row ever archived, joined by (xid, seq)", "rows")
    made.add_row("archived by the relay", f"{rows.archived}")
    made.add_row("= in the lake, verified, and dropped by PostgreSQL", f"{rows.dropped}")
    made.add_row("+ in the lake, and still in PostgreSQL (dead messages)", f"{rows.both}")
    made.add_row(f"+ only in PostgreSQL: {ledger.outcome['kept']}, never exported, kept", f"{rows.kept}")
    made.add_row("+ only in PostgreSQL: today's, of the replay", f"{rows.later}")
    made.add_section()
    made.add_row("checksum of the exported rows, as archived", f"{rows.checksums[0]:x}")
    made.add_row("checksum of the exported rows, as the lake has them", f"{rows.checksums[1]:x}")
    return made


def _promises(found: list[Promise]) -> Table:
    made = table("what must hold", "found", "must be")
    for one in found:
        promise(made, one.words, one.broken)
    return made


def _sentence(one: Promise) -> str:
    return f"{one.words}: {one.broken}" + (f", such as {one.such_as}." if one.such_as else ".")


def _accounted(rows: Sums) -> int:
    return rows.dropped + rows.both + rows.kept + rows.later
