"""What frees and moves messages beside a relay's claims, by the tables in memory: `sql/0007_control.sql`, `sql/0009_sweep.sql`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from tests.simulation.claims import Found, Values, position
from tests.simulation.database import Database, Row, Transaction

EVERYTHING = (2**62, 0)


def wake_key(database: Database, tx: Transaction, key: str) -> None:
    """Make the head of a key due, unless somebody has it locked."""
    head = database.head_of(key)
    if head is not None and tx.free(head):
        tx.hold(head)
        tx.then(partial(_wake, database, head))


def _wake(database: Database, row: Row) -> None:
    if row.at in database.rows and row.ready:
        database.wait(row, database.now())


def wake_successors(database: Database, tx: Transaction, values: Values) -> Found:
    """`wake_successors.sql`."""
    for key in values["keys"]:
        wake_key(database, tx, key)
    return [(None,) for _ in values["keys"]]


def sweep(database: Database, tx: Transaction, rows: Iterable[Row]) -> tuple[int, int]:
    """`queue_message_sweep`: of these rows free those whose lock has expired; return released, archived."""
    now = database.now()
    expired = [row for row in rows if row.lock_expires_at is not None and row.lock_expires_at <= now and tx.free(row)]
    strict = database.settings["on_lock_expired"] == "archive"
    allowed = 0 if strict else int(database.settings["max_attempts"])
    dead = [row for row in expired if row.attempts >= allowed]
    for row in expired:
        tx.hold(row)
        tx.then(partial(_bury if row.attempts >= allowed else _free, database, row))
    return len(expired) - len(dead), len(dead)


def _free(database: Database, row: Row) -> None:
    database.watch.expired(row)
    row.free_at = database.now()
    row.last_error = f"lock expired at {row.lock_expires_at}"
    database.unlock(row, row.locked_by or 0, database.now())


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


def sweep_silent(database: Database, tx: Transaction, values: Values) -> Found:
    """`sweep_silent.sql`: relay by relay, each from its lowest position."""
    now, below, locked = database.now(), (int(values["below_xid"]), 0), database.locked()
    swept = (0, 0)
    for number, relay in sorted(database.relays.items()):
        own, age = number == values["own"], now - relay.heartbeat_at
        if not own and not values["silence"] < age < values["forgotten"]:
            continue
        apart = own or values["lock_seconds"] <= age <= values["lock_seconds"] + values["apart"]
        held = [row for row in locked if row.locked_by == number]
        found = [row for row in held if relay.low <= row.at and (row.at < below or (apart and row.key is not None))]
        found += [row for row in held if apart and row.available_at is not None and row not in found]
        more = sweep(database, tx, found)
        swept = (swept[0] + more[0], swept[1] + more[1])
    return [swept]


def sweep_all(database: Database, tx: Transaction, values: Values) -> Found:
    """`sweep_all.sql` over a small table: everything."""
    del values
    return [sweep(database, tx, database.locked())]


def forget_relays(database: Database, tx: Transaction, values: Values) -> Found:
    """`forget_relays.sql`."""
    since = database.now() - values["forgotten"]
    for number in [number for number, relay in database.relays.items() if relay.heartbeat_at < since]:
        tx.then(partial(database.relays.pop, number, None))
    return []


def free_stranded(database: Database, tx: Transaction, values: Values) -> Found:
    """`free_stranded.sql`."""
    bound = min((database.relays[number].head for number in database.alive(values["silence"])), default=(-1, 0))
    below, xmin = position(values, "below"), database.xmin
    places = islice(database.order, min(bisect_right(database.order, bound), bisect_left(database.order, min(below, (xmin, 0)))))
    rows = map(database.rows.__getitem__, places)
    stranded = [row for row in rows if row.ready and row.key is None and tx.free(row)]
    for row in stranded:
        tx.hold(row)
        tx.then(partial(_wake, database, row))
    return [(row.at[1],) for row in stranded]


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
    """`renumber.sql` where nothing was restored."""
    del database, tx, values
    return [(0, False)]


def read_gauges(database: Database, tx: Transaction, values: Values) -> Found:
    """`read_gauges.sql`."""
    del tx, values
    return [({"ready": float(len(database.rows)), "clock": 0.0},)]


SWEEPS: dict[str, Callable[[Database, Transaction, Values], Found]] = {
    "wake_successors": wake_successors,
    "sweep_silent": sweep_silent,
    "sweep_all": sweep_all,
    "forget_relays": forget_relays,
    "free_stranded": free_stranded,
    "ensure_partitions": ensure_partitions,
    "retain": none,
    "renumber": renumber,
    "read_gauges": read_gauges,
}
