"""Works on PostgreSQL as superuser: dates the archive back, lists its rows for the ledger, and runs retention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from relay.demo.history.ledger import LEFT, REPLAYED, STATS, digest, identity
from relay.demo.journal import Journal
from relay.demo.statements import statement


class Archive:
    """The archive of the private server. Each call has a connection and a transaction of its own.

    Args:
        url: the private server, with the superuser's login.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._noted: set[tuple[int, int]] = set()

    def now(self) -> datetime:
        """The time of the database's clock."""
        with self._connect() as connection:
            [row] = connection.execute("SELECT clock_timestamp()")
        return row["clock_timestamp"].astimezone(UTC)  # type: ignore[no-any-return]

    def make_login(self) -> None:
        """Create the pipeline's login."""
        with self._connect() as connection:
            connection.execute(statement("history_login"))

    def date_back(self, since: datetime, first: date, days: int) -> int:
        """Spread the rows archived since a time over some days; return the number of rows."""
        begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
        with self._connect() as connection:
            for day in range(days):
                connection.execute(statement("history_make_partitions"), {"day": begin + timedelta(days=day)})
        with self._connect() as connection:
            connection.execute("SET LOCAL session_replication_role = replica")
            [row] = connection.execute(statement("history_date_back"), {"since": since, "first": begin, "days": days})
        return int(row["count"])

    def note_rows(self, journal: Journal) -> int:
        """Record each archived row that was not recorded before; return the number of rows."""
        found = [row for row in self._rows("history_list_rows") if identity(row) not in self._noted]
        for row in found:
            journal.note(**_summary(row))
            self._noted.add(identity(row))
        return len(found)

    def days(self) -> set[date]:
        """The days that have a partition."""
        return {row["to_date"] for row in self._rows("history_list_days")}

    def retain(self) -> None:
        """Run retention, as every relay does from time to time, until there is nothing left to drop."""
        while any(row["action"] == "dropped" for row in self._rows("history_retain")):
            pass

    def write_ledger(self, folder: Path, job: str) -> None:
        """Write to the ledger the rows that are left at the end, the messages that the replay job has enqueued, and the statistics."""
        with Journal(folder / LEFT) as journal:
            for row in self._rows("history_list_rows"):
                journal.note(**_summary(row))
        for name, listed in ((REPLAYED, self._rows("history_list_replayed", job=job)), (STATS, self._rows("history_list_stats"))):
            with Journal(folder / name) as journal:
                for row in listed:
                    journal.note(**row)

    def _rows(self, name: str, **values: Any) -> list[dict[str, Any]]:
        with self._connect() as connection:
            return connection.execute(statement(name), values).fetchall()

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[dict[str, Any]]]:
        with psycopg.connect(self._url, application_name="demo archive", row_factory=dict_row) as connection:
            yield connection


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """The ledger's entry for a row: its identity, the columns that join it to other rows, and a digest of all its columns."""
    kept = ("xid", "seq", "id", "exchange", "result", "replay_of", "archived_at")
    return {**{name: row[name] for name in kept}, "digest": digest(row)}
