"""What `relay check --queue` says of a simulated queue: the same judgement, of what its page would show."""

from __future__ import annotations

from collections.abc import Iterator

from relay.cli.queue_check.rows import QueueRow, why_lost
from tests.simulation.database import Database, Row
from tests.simulation.ledger import BrokenError

LONGER = 10.0
"""Seconds by which a lock may end later than the lock time: see `sql/0028_check.sql`."""


def expect_none_lost(database: Database, *, restored: bool = False) -> None:
    """No message stays that no relay will find; with `restored`, messages that still have another cluster's ids may.

    Raises:
        BrokenError: the check would name one.
    """
    for row in _rows(database):
        if (reason := why_lost(row)) and not (restored and row.foreign_id):
            raise BrokenError(f"{row.id} at {row.position} is lost: {reason}.")


def _rows(database: Database) -> Iterator[QueueRow]:
    living = set(database.alive(float(database.settings["lock_seconds"])))
    living -= {number for number, relay in database.relays.items() if relay.left}
    return (_as_seen(database, row, living) for row in database.rows.values())


def _as_seen(database: Database, row: Row, living: set[int]) -> QueueRow:
    """One row of `queue_message_check_page`."""
    keyed = database.by_key.get(row.key, []) if row.key is not None else [row.at]
    return QueueRow(
        xid=str(row.at[0]), seq=row.at[1], id=row.id, exchange=row.exchange, ordering_key=row.key, attempts=row.attempts,
        available_at=row.available_at, lock_ends_at=row.lock_expires_at, locked_by=row.locked_by,
        over=row.lock_expires_at is not None and row.lock_expires_at <= database.now(), abandoned=_is_abandoned(database, row, living),
        foreign_id=row.at[0] >= database.xmax, lane=row.lane, key_lane=None if row.key is None else database.lane(row.key),
        lane_known=row.lane is None or any(lane.number == row.lane for lane in database.lanes),
        indexed=bool(keyed) and keyed[0] <= row.at, head=keyed[:1] == [row.at], held=row.key in database.parked,
        paused=row.exchange in database.paused, limited=row.exchange in database.limited,
        session=None if row.tx is None else row.tx.xid, clock=database.now(),
    )  # fmt: skip


def _is_abandoned(database: Database, row: Row, living: set[int]) -> bool:
    if row.lock_expires_at is None or row.locked_by is None or row.locked_by in living or database.clock_seen.moved_at is not None:
        return False
    return row.lock_expires_at > database.now() + float(database.settings["lock_seconds"]) + LONGER
