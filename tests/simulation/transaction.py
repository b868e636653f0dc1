"""One client's transaction: the locks that it holds, and the changes that others see when it commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.rows import Lane, Row

if TYPE_CHECKING:
    from tests.simulation.database import Database


class BlockedError(Exception):
    """The statement waits for a lock of somebody else."""


class Transaction:
    """What one client does between begin and end; its changes are there for others when it commits."""

    __slots__ = ("_changes", "_database", "_held", "_lanes", "done", "rows", "xid")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: list[Callable[[], object]] = []
        self._held: list[Row] = []
        self._lanes: list[Lane] = []
        self.xid = 0
        self.rows: list[Row] = []
        self.done = False

    def insert(self, row: Row) -> None:
        """Insert a message that others see after the commit."""
        row.at = (self._begin_to_write(), self._database.next_seq())
        self.rows.append(row)

    def free(self, row: Row) -> bool:
        """No other transaction has it locked."""
        return row.tx is None or row.tx is self

    def hold(self, row: Row) -> None:
        """Lock a row until the end.

        Raises:
            BlockedError: somebody else has it.
        """
        if not self.free(row):
            raise BlockedError
        row.tx = self
        self._held.append(row)

    def hold_lane(self, lane: Lane, *, share: bool) -> None:
        """Lock a lane's row, for itself or with others.

        Raises:
            BlockedError: somebody else has it.
        """
        if lane.tx not in {None, self} or (not share and lane.sharers.keys() - {self}):
            raise BlockedError
        if share:
            lane.sharers[self] = None
        else:
            lane.tx = self
        self._lanes.append(lane)

    def then(self, change: Callable[[], object]) -> None:
        """Do something at the commit."""
        self._begin_to_write()
        self._changes.append(change)

    def commit(self) -> None:
        """Let others see what was done."""
        database = self._database
        database.commits += 1
        for row in self.rows:
            database.add(row)
        for change in self._changes:
            change()
        self.rollback()

    def rollback(self) -> None:
        """Undo it: no other transaction sees its changes."""
        self.done = True
        self._database.running.pop(self.xid, None)
        for row in self._held:
            row.tx = None
        for lane in self._lanes:
            lane.sharers.pop(self, None)
            lane.tx = None if lane.tx is self else lane.tx

    def _begin_to_write(self) -> int:
        if not self.xid:
            self.xid = self._database.next_xid()
            self._database.running[self.xid] = self
        return self.xid
