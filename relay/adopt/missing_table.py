"""An adopted table that was dropped or renamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.rows import DictRow

from relay.adopt.ddl import forget, function_name
from relay.adopt.layout import AdoptError
from relay.adopt.source_table import ask
from relay.postgres.operator_session import OWNER, OperatorSession


def is_missing(console: OperatorSession, row: Mapping[str, Any]) -> bool:
    """Whether the adopted table no longer has its recorded name, even if another table has that name now."""
    found = _named(console, row)
    return found is None or not found["here"]


def _named(console: OperatorSession, row: Mapping[str, Any]) -> DictRow | None:
    """The table's current name; None if the table was dropped."""
    with console.transaction(needs=OWNER):
        function = function_name(row["source"], "send")
        return next(iter(ask(console, "name_adopted", kept=row["kept"], schema=console.schema, function=function)), None)


class MissingTable:
    """An adopted table that was dropped or renamed.

    Args:
        console: the connection of a login that owns both the table and the queue.
        row: the database's record of the adoption.
    """

    def __init__(self, console: OperatorSession, row: Mapping[str, Any]) -> None:
        self._console = console
        self.row = row

    def back(self) -> str:
        """Return the SQL that removes the adoption's functions and record.

        Raises:
            AdoptError: the table was renamed, and its new rows are still diverted.
        """
        if found := _named(self._console, self.row):
            raise AdoptError(f"{self.row['kept']} is called {found['name']} now: rename it back, then it can go back.")
        return forget(self._console.schema, self.row["source"], self.row["phase"])
