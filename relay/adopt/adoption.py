"""Moves a table through the phases of an adoption (mirror, switched, finished, and back); each step is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import DictRow

from relay.adopt.ddl import Chosen, Script
from relay.adopt.layout import AdoptError, MissingError, mapping, read
from relay.adopt.missing_table import MissingTable, is_missing
from relay.adopt.source_table import a_name, ask, find, must_fit, must_suit_view
from relay.postgres.operator_session import OWNER, OperatorSession

OPEN = ("waiting", "leased")
"""States of rows that are neither sent nor given up."""


def begin(console: OperatorSession, name: str, layout: str, options: Mapping[str, str], by: str | None) -> Script:
    """Return the steps for a table that is not adopted yet; run nothing.

    Args:
        console: the connection of a login that owns both the table and the queue.
        name: the table's name in the form of SQL.
        layout: the name of the layout of its rows.
        options: templates and options of the layout.
        by: how new rows are diverted: trigger or view; None for the layout's default.

    Raises:
        AdoptError: the table does not match the layout, or an option is invalid.
    """
    kind = read(layout)
    if kind.waits == "wal" and by == "trigger":
        raise AdoptError(
            f"The layout {layout} needs a view: a row that a trigger deletes in the same transaction remains in the WAL, where "
            "the old relay reads it."
        )
    with console.transaction(needs=OWNER):
        table = find(console, name)
        must_fit(table, kind)
        if (by or kind.by) == "view":
            must_suit_view(console, table, kind)
    mapping(kind, options, table.columns)
    if taken := next((row["phase"] for row in console.rows("list_adoptions") if table.written in {row["source"], row["kept"]}), None):
        raise AdoptError(f"{table.written} is adopted already and in the phase {taken!r}: `relay adopt back` ends that.")
    return Script(console.schema, (table.schema, table.name), table, Chosen(kind, by or kind.by, options))


def run(console: OperatorSession, script: str) -> None:
    """Run the SQL of one step.

    Raises:
        RelayError: the step was refused; nothing was changed.
    """
    with console.transaction(needs=OWNER) as connection:
        connection.execute(script.encode())


def judge(console: OperatorSession, script: Script) -> list[DictRow]:
    """Check what messages the mapping makes of some hundred existing rows; change nothing."""
    with console.transaction(needs=OWNER) as connection, connection.transaction(force_rollback=True):
        connection.execute(script.functions().encode())
        connection.execute(script.judge().encode())
        return console.rows("list_adoption_seen", source=script.source)


class Adoption:
    """A table of another outbox whose new rows are watched or diverted.

    Args:
        console: the connection of a login that owns both the table and the queue.
        row: the database's record of the adoption.
    """

    def __init__(self, console: OperatorSession, row: Mapping[str, Any]) -> None:
        self._console = console
        self.row = row
        self.layout = read(row["layout"])
        with console.transaction(needs=OWNER):
            table = find(console, row["kept"])
            schema, name = _parts(console, row["source"])
        self.script = Script(console.schema, (schema, name), table, Chosen(self.layout, row["by"], row["options"]))

    def switch(self) -> str:
        """Return the SQL that diverts new rows.

        Raises:
            AdoptError: the table is not in the phase `mirror`.
        """
        self._must_be("mirror", "switch")
        return self.script.switch()

    def take(self, states: Sequence[str]) -> int:
        """Move every row of these states into the queue, in batches; return how many.

        Raises:
            AdoptError: new rows are not diverted yet, or the table does not show which rows still wait.
        """
        self._must_be("switched", "take")
        if self.layout.waits == "wal":
            raise AdoptError("Only the replication slot shows which rows were sent, not the table: let the old relay read to the end.")
        moved = 0
        while rows := self._take(states):
            moved += rows
        return moved

    def finish(self, slot: str | None) -> str:
        """Return the SQL that records that the old relay has no rows left.

        Raises:
            AdoptError: the old relay has rows left, or a replication slot is missing or behind.
        """
        self._must_be("switched", "finish")
        counts = self.count()
        if left := " and ".join(f"{counts[state]} {state}" for state in OPEN if counts.get(state)):
            raise AdoptError(f"The old relay still has {left}: let it continue, or stop it and take them over with `relay adopt take`.")
        slots = self.slots(slot)
        if slot and not slots:
            raise AdoptError(f"There is no logical replication slot {slot!r} in this database.")
        if behind := [one["slot"] for one in slots if not one["passed"]]:
            raise AdoptError(
                f"The replication slot {behind[0]!r} has not confirmed everything written before the switch: let the old relay read on "
                "(if nothing is written, its heartbeat moves the slot), or name its slot with --slot."
            )
        return self.script.finish()

    def back(self) -> str:
        """Return the SQL that leaves new rows to the old relay again.

        outbox-relay still sends messages that are already in the queue.
        """
        return self.script.back(self.row["phase"])

    def count(self) -> dict[str, int]:
        """Rows of the old table by state."""
        with self._console.transaction(needs=OWNER) as connection:
            return {row["state"]: row["rows"] for row in connection.execute(self.script.count().encode())}

    def seen(self) -> list[DictRow]:
        """Counts of the rows that a mirror has seen, by the address of their message or by the reason why they cannot become messages."""
        return self._console.rows("list_adoption_seen", source=self.row["source"])

    def slots(self, name: str | None = None) -> list[DictRow]:
        """Logical replication slots, and whether each has confirmed all WAL that was written before the switch.

        The list is empty before the switch. It is also empty if the layout's old relay polls the table instead of reading the WAL.
        """
        if self.layout.waits != "wal" or self.row["switched_at"] is None:
            return []
        return self._console.rows("list_slots", name=name, place=self.row["switched_at"])

    def _take(self, states: Sequence[str]) -> int:
        with self._console.transaction(needs=OWNER) as connection:
            connection.execute(self.script.take(states).encode())
            return int(self._console.row("read_taken")["rows"])

    def _must_be(self, phase: str, verb: str) -> None:
        if self.row["phase"] != phase:
            raise AdoptError(f"{self.row['source']} is in the phase {self.row['phase']!r}; `relay adopt {verb}` comes after {phase!r}.")


def adoptions(console: OperatorSession) -> list[Adoption | MissingTable]:
    """Every table whose new rows are watched or diverted."""
    return [_adoption(console, row) for row in console.rows("list_adoptions")]


def find_adoption(console: OperatorSession, name: str) -> Adoption:
    """The adoption of a table by the name that applications use, with or without the schema.

    Raises:
        MissingError: no adopted table has that name.
        AdoptError: more than one adopted table has that name, or the table was dropped or renamed.
    """
    found = find_any(console, name)
    if isinstance(found, MissingTable):
        raise AdoptError(f"{found.row['source']} is gone: rename it back, or, if it was dropped, let `relay adopt back` forget it.")
    return found


def find_any(console: OperatorSession, name: str) -> Adoption | MissingTable:
    """The same as `find_adoption`, but the table may have been dropped or renamed."""
    with console.transaction(needs=OWNER), a_name(name):
        found = _parts(console, name)
        matching = [row for row in console.rows("list_adoptions") if _parts(console, row["source"])[-len(found) :] == found]
    if not matching:
        raise MissingError(f"No table {name!r} is adopted; `relay adopt list` shows those that are.")
    if len(matching) > 1:
        raise AdoptError(f"More than one table {name!r} is adopted; `relay adopt list` shows those that are.")
    return _adoption(console, matching[0])


def _adoption(console: OperatorSession, row: Mapping[str, Any]) -> Adoption | MissingTable:
    return MissingTable(console, row) if is_missing(console, row) else Adoption(console, row)


def _parts(console: OperatorSession, name: str) -> list[str]:
    [row] = ask(console, "parse_name", name=name)
    parts: list[str] = row["parts"]
    return parts
