"""Statements that free and move messages alongside a relay's claims, by the tables in memory: `sql/0007`, `sql/0025` and `sql/0034`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from tests.simulation.claims import Found, Values, positions
from tests.simulation.database import LAST, Database, Row, Transaction

RENUMBERED = 2
"""The id of messages that had another cluster's: no transaction ever has it."""


def wake_key(database: Database, tx: Transaction, key: str) -> None:
    """Make the head of a key due, unless somebody has it locked."""
    head = database.head_of(key)
    if head is not None and tx.free(head):
        tx.hold(head)
        tx.then(partial(_wake, database, head))


def _wake(database: Database, row: Row) -> None:
    if row.at in database.rows and row.ready:
        database.wait(row, database.now())


def free_expired(database: Database, tx: Transaction, values: Values) -> Found:
    """`free_expired.sql`."""
    return [(*_freed(database, tx, [database.rows[at] for at in positions(values) if at in database.rows]), None)]


def sweep_minute(database: Database, tx: Transaction, values: Values) -> Found:
    """`sweep_minute.sql` over a short queue: everything."""
    del values
    _note_clock(database)
    return [_freed(database, tx, database.locked())]


def _freed(database: Database, tx: Transaction, rows: Iterable[Row]) -> tuple[int, int]:
    """`queue_message_free_locks`: of these rows free those whose lock is over; return released, archived."""
    now = database.now()
    expired = [row for row in rows if is_over(database, row) and tx.free(row)]
    strict = database.settings["on_lock_expired"] == "archive"
    allowed = 0 if strict else int(database.settings["max_attempts"])
    dead = [row for row in expired if row.attempts >= allowed]
    for row in expired:
        tx.hold(row)
        tx.then(partial(_bury, database, row) if row.attempts >= allowed else partial(_free, database, row, now))
    return len(expired) - len(dead), len(dead)


def _note_clock(database: Database) -> None:
    """`queue_message_note_clock`: see that the clock was set back."""
    now, seen = database.now(), database.clock_seen
    heard = max((relay.heartbeat_at for relay in database.relays.values()), default=-math.inf)
    ahead = now + float(database.settings["lock_seconds"])
    if seen.seen_at > ahead or (seen.moved_at is None and heard > ahead):
        seen.moved_at = now
        seen.until = max(seen.until, seen.seen_at, heard) + ahead - now + 60.0
    elif now > seen.until:
        seen.moved_at, seen.until = None, -math.inf
    seen.seen_at = now


def is_over(database: Database, row: Row) -> bool:
    """`queue_message_lock_over`: a lock that lies further ahead than any can is over if its holder is silent."""
    now, moved_at = database.now(), database.clock_seen.moved_at
    if row.lock_expires_at is None or row.lock_expires_at <= now or row.locked_by is None or moved_at is None:
        return row.lock_expires_at is not None and row.lock_expires_at <= now
    lock_time = float(database.settings["lock_seconds"])
    return row.lock_expires_at > now + lock_time + 10.0 and now >= moved_at + lock_time and row.locked_by not in database.alive(lock_time)


def _free(database: Database, row: Row, now: float) -> None:
    database.watch.expired(row)
    if database.moment() >= row.locked_at + float(database.settings["lock_seconds"]):
        # Else the server's clock was set ahead, which no relay can know: what it holds may go out twice.
        row.free_at = database.moment()
    row.last_error = f"lock expired at {row.lock_expires_at}"
    database.unlock(row, row.locked_by or 0, now)


def _bury(database: Database, row: Row) -> None:
    database.watch.expired(row)
    database.move(row, "lock_expired", "lock_expired", "sweep")
    if row.key is not None and database.settings.get("on_dead_key") == "park":
        database.parked[row.key] = None
    elif row.key is not None:
        _wake_head(database, row.key)


def _wake_head(database: Database, key: str) -> None:
    """As `wake_key`, in the middle of a commit."""
    head = database.head_of(key)
    if head is not None and head.tx is None:
        _wake(database, head)


def forget_relays(database: Database, tx: Transaction, values: Values) -> Found:
    """`forget_relays.sql`."""
    since = database.now() - values["forgotten"]
    for number in [number for number, relay in database.relays.items() if relay.heartbeat_at < since]:
        tx.then(partial(database.relays.pop, number, None))
    return []


def skip_key(database: Database, tx: Transaction, key: str) -> bool:
    """`queue_message_key_skip`: archive a key's head as discarded; False where it would be refused."""
    head = database.head_of(key)
    if head is None or (head.lock_expires_at is not None and head.lock_expires_at > database.now()):
        return False
    tx.hold(head)
    tx.then(partial(database.move, head, "discarded", "skipped", "operator"))
    tx.then(partial(_wake_head, database, key))
    return True


def ensure_partitions(database: Database, tx: Transaction, values: Values) -> Found:
    """`ensure_partitions.sql`."""
    del values
    made = int(database.no_partition)
    tx.then(lambda: setattr(database, "no_partition", False))
    return [(made,)]


def none(database: Database, tx: Transaction, values: Values) -> Found:
    """`retain.sql`."""
    del database, tx, values
    return [(0, 0)]


def renumber(database: Database, tx: Transaction, values: Values) -> Found:
    """`renumber.sql`: messages with another cluster's higher ids get a lower one than any of this one, in their order; locks stay."""
    foreign = list(database.between((database.xmax, 0), LAST))
    for row in foreign[: values["most"]]:
        tx.hold(row)
        tx.then(partial(_renumber, database, row))
    renumbered = len(foreign[: values["most"]])
    return [(renumbered, len(foreign) > values["most"], renumbered, None)]


def _renumber(database: Database, row: Row) -> None:
    database.renumber(row, (RENUMBERED, database.next_seq()))
    database.settle_in(row)


def read_gauges(database: Database, tx: Transaction, values: Values) -> Found:
    """`read_gauges.sql`."""
    del tx, values
    return [({"ready": float(len(database.rows)), "clock": 0.0},)]


SWEEPS: dict[str, Callable[[Database, Transaction, Values], Found]] = {
    "free_expired": free_expired,
    "sweep_minute": sweep_minute,
    "forget_relays": forget_relays,
    "ensure_partitions": ensure_partitions,
    "retain": none,
    "renumber": renumber,
    "read_gauges": read_gauges,
}
