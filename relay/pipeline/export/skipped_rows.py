"""Rows of the archive that no lake can store. An export leaves them out and names them, and PostgreSQL keeps their days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.pipeline.source.columns import ArchiveColumn, fault
from relay.pipeline.source.database import Database
from relay.pipeline.text import many

NAMED = 20
"""How many rows one export names."""


@dataclass(frozen=True)
class SkippedRows:
    """The identity of a row, and the code that says why no lake can store the row."""

    xid: int
    seq: int
    code: str


@dataclass(frozen=True)
class SkippedRange:
    """The number of rows of a range that no lake can store, and the first of these rows."""

    rows: int = 0
    named: tuple[SkippedRows, ...] = ()

    def __add__(self, other: SkippedRange) -> SkippedRange:
        return SkippedRange(self.rows + other.rows, (*self.named, *other.named)[:NAMED])

    def __str__(self) -> str:
        """The line that an export reports about these rows."""
        names = ", ".join(f"({one.xid}, {one.seq}) {one.code}" for one in self.named)
        more = ", …" if self.rows > len(self.named) else ""
        return f"{many(self.rows, 'row')} left out, because no lake can hold such values: (xid, seq) {names}{more}"


def find(database: Database, columns: Sequence[ArchiveColumn], low: int, high: int | None) -> SkippedRange:
    """Rows of the transactions from `low` to below `high` that no lake can store; raises the same errors as `Database.fetch`."""
    statement = database.statement("list_left_out").replace(b"@fault@", fault(columns).as_string(None).replace("%", "%%").encode())
    values = {"low": str(low), "high": None if high is None else str(high), "most": NAMED}
    with database.limited(database.snapshot_seconds) as connection:
        found = connection.execute(statement, values).fetchall()
    return SkippedRange(found[0][3] if found else 0, tuple(SkippedRows(int(xid), seq, code) for xid, seq, code, _ in found))
