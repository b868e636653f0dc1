"""What the statements behind settling, a relay's own row and its lanes do, by the tables in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from relay.errors import StoreError
from tests.simulation.claims import Found, Values, positions
from tests.simulation.database import At, Database, Lane, RelayRow, Row, Transaction

SHARED_WITHIN = 6.0
"""Seconds since its last heartbeat in which a relay has its part of a limit."""


def settle(database: Database, tx: Transaction, values: Values) -> Found:
    """`settle.sql`: to the archive, fenced by the token; with `skip` past rows that another session holds.

    Raises:
        BlockedError: another session holds one of the rows.
        StoreError: the archive does not take one of the rows.
    """
    named = positions(values)
    results = values["results"] or ["success"] * len(named)
    codes = values["codes"] or [None] * len(named)
    if database.no_partition:
        raise StoreError("The archive has no partition for today.", no_partition=True)
    left: Found = []
    for at, result, code in zip(named, results, codes, strict=True):
        row = database.rows.get(at)
        if row is None or not fenced(row, values) or (values["skip"] and not tx.free(row)):
            left.append(_left(row, at, values))
            continue
        tx.hold(row)
        if row.id in database.refused:
            raise StoreError("The archive refuses a value.", refused=True)
        tx.then(partial(_archive, database, row, (result, code), values))
    return left


def _left(row: Row | None, at: At, values: Values) -> tuple[int, int, bool]:
    """What is not written: another session holds it, or it is not ours any more."""
    return (*at, row is not None and fenced(row, values))


def fenced(row: Row, values: Values) -> bool:
    """The fence: the row still has the lock token that the write names."""
    return bool(row.lock_token == values["token"])


def _archive(database: Database, row: Row, outcome: tuple[str, str | None], values: Values) -> None:
    database.watch.fenced(row, values["token"])
    database.move(row, *outcome, values["handled_by"], values["claimed_at"])
    if values["park_dead_keys"] and row.key is not None and outcome[0] not in {"success", "discarded"}:
        database.parked[row.key] = None


def release(database: Database, tx: Transaction, values: Values) -> Found:
    """`release.sql`: back to the queue, fenced by the token; past rows that another session holds."""
    left: Found = []
    for index, at in enumerate(positions(values)):
        row = database.rows.get(at)
        if row is None or not fenced(row, values) or not tx.free(row):
            left.append(_left(row, at, values))
            continue
        tx.hold(row)
        back = {name: values[name][index] for name in ("given_back", "errors")}
        tx.then(partial(_release, database, row, back | {"due_at": database.now() + values["delays"][index]}, values))
    return left


def _release(database: Database, row: Row, back: Mapping[str, Any], values: Values) -> None:
    database.watch.fenced(row, values["token"])
    relay = row.locked_by if values["suspect"] and back["given_back"] else None
    database.unlock(row, relay, back["due_at"])
    row.attempts -= back["given_back"]
    row.last_error = back["errors"] or row.last_error


def find_released(database: Database, tx: Transaction, values: Values) -> Found:
    """`find_released.sql`."""
    del tx
    found: Found = []
    for at, id_, attempts, error in zip(positions(values), values["ids"], values["attempts"], values["errors"], strict=True):
        row, archived = database.rows.get(at), database.archive.get(id_)
        if row is not None:
            standing = attempts + (row.lock_token is not None)
            if row.lock_token != values["token"] and (row.attempts, row.last_error) == (standing, error):
                found.append(at)
        elif archived and archived.row.attempts == attempts + 1 and (archived.claimed_at or 0.0) > values["claimed_at"]:
            found.append(at)
    return found


def find_archived(database: Database, tx: Transaction, values: Values) -> Found:
    """`find_archived.sql`."""
    del tx
    wanted = (values["handled_by"], values["claimed_at"])
    archived = [(id_, database.archive[id_]) for id_ in values["ids"] if id_ in database.archive]
    queued = {row.id for row in database.rows.values()}
    gone = [(id_,) for id_ in values["successes"] if id_ not in queued and id_ not in database.archive]
    return [(id_,) for id_, one in archived if (one.handled_by, one.claimed_at) == wanted] + gone


def renew_locks(database: Database, tx: Transaction, values: Values) -> Found:
    """`renew_locks.sql`: past rows that another session holds."""
    left: Found = []
    for at in positions(values):
        row = database.rows.get(at)
        if row is None or not fenced(row, values) or not tx.free(row):
            left.append(_left(row, at, values))
            continue
        tx.hold(row)
        tx.then(partial(_renew, database, row, values))
    return left


def _renew(database: Database, row: Row, values: Values) -> None:
    database.watch.fenced(row, values["token"])
    row.lock_expires_at, row.locked_at = database.now() + values["lock_seconds"], database.moment()


def register_relay(database: Database, tx: Transaction, values: Values) -> Found:
    """`register_relay.sql`."""
    del values
    number, started_at = database.next_relay(), database.now()
    tx.then(lambda: database.relays.update({number: RelayRow(database.now(), repr(started_at))}))
    return [(number, repr(started_at))]


def unregister_relay(database: Database, tx: Transaction, values: Values) -> Found:
    """`unregister_relay.sql`."""
    number = values["relay_id"]
    relay = database.relays.get(number)
    if relay is None or relay.started_at != values["started_at"]:
        return []
    for lane in database.lanes:
        if lane.owner == number:
            tx.hold_lane(lane, share=False)
            tx.then(partial(_own, lane, None))
    tx.then(partial(_leave, database, number, holds_locks=values["holds_locks"]))
    return []


def _leave(database: Database, number: int, *, holds_locks: bool) -> None:
    if not holds_locks:
        database.relays.pop(number, None)
    elif number in database.relays:
        database.relays[number].left = True


def _own(lane: Lane, owner: int | None) -> None:
    lane.owner, lane.epoch = owner, lane.epoch + (owner is not None)


def heartbeat(database: Database, tx: Transaction, values: Values) -> Found:
    """`heartbeat.sql`."""
    relay = database.relays.get(values["relay_id"])
    if relay is None or relay.started_at != values["started_at"]:
        return []
    tx.then(partial(_report, database, relay, values["state"]))
    return [(values["relay_id"],)]


def _report(database: Database, relay: RelayRow, state: str) -> None:
    relay.heartbeat_at, relay.able = database.now(), json.loads(state).get("broker") == "up"


def renew_lanes(database: Database, tx: Transaction, values: Values) -> Found:
    """`renew_lanes.sql`."""
    del tx
    ours = [lane for lane in database.lanes if lane.owner == values["relay_id"]]
    alive = database.alive(values["lease_seconds"])
    able = [number for number in alive if database.relays[number].able]
    share = math.ceil(len(database.lanes) / max(len(able or alive), 1)) if not able or values["relay_id"] in able else 0
    return [(share, [lane.number for lane in ours], [lane.epoch for lane in ours])]


def yield_lanes(database: Database, tx: Transaction, values: Values) -> Found:
    """`yield_lanes.sql`."""
    surplus = [lane for lane in reversed(database.lanes) if lane.owner == values["relay_id"]][: values["most"]]
    for lane in surplus:
        tx.hold_lane(lane, share=False)
        tx.then(partial(_own, lane, None))
    return [(lane.number,) for lane in surplus]


def acquire_lanes(database: Database, tx: Transaction, values: Values) -> Found:
    """`acquire_lanes.sql`: those without a living owner, with a new epoch; locked ones are stepped over."""
    alive = set(database.alive(values["lease_seconds"]))
    free = [lane for lane in database.lanes if lane.owner not in alive and lane.tx in {None, tx} and not lane.sharers]
    taken = free[: values["most"]]
    for lane in taken:
        tx.hold_lane(lane, share=False)
        tx.then(partial(_own, lane, values["relay_id"]))
    return [(lane.number, lane.epoch + 1) for lane in taken]


def read_policy(database: Database, tx: Transaction, values: Values) -> Found:
    """`read_policy.sql`."""
    del tx, values
    settings: Found = [("setting", name, value) for name, value in database.settings.items()]
    held: Found = [("paused", exchange, "") for exchange in database.paused]
    limited: Found = [("limited", exchange, repr(figure)) for exchange, figure in database.limited.items()]
    return [*settings, *held, *limited, ("relays", "", str(len(database.alive(SHARED_WITHIN))))]


def nothing(database: Database, tx: Transaction, values: Values) -> Found:
    """Statements that change nothing here."""
    del database, tx, values
    return []


WRITES: dict[str, Callable[[Database, Transaction, Values], Found]] = {
    "settle": settle,
    "release": release,
    "find_released": find_released,
    "find_archived": find_archived,
    "renew_locks": renew_locks,
    "register_relay": register_relay,
    "unregister_relay": unregister_relay,
    "heartbeat": heartbeat,
    "renew_lanes": renew_lanes,
    "yield_lanes": yield_lanes,
    "acquire_lanes": acquire_lanes,
    "read_policy": read_policy,
    "reject_unprintable": nothing,
    "renotify": nothing,
    "run_schedules": lambda _database, _tx, _values: [(0, None)],
    "list_failing_schedules": nothing,
    "list_failing_keys": nothing,
    "read_fold": lambda _database, _tx, _values: [(None, 0.0, 0.0)],
    "fold_keys": lambda _database, _tx, _values: [(0, 0, 0, None, 0.0)],
}
