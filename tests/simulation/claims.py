"""What the claim statements do, by the tables in memory; each names its file of `relay/queries`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from relay.errors import StoreError
from tests.simulation.database import LAST, At, Database, Row, Transaction

Values = Mapping[str, Any]
Found = list[tuple[Any, ...]]
Bound = list[int | None]
Claiming = Callable[["Database", "Transaction", Values], Found]
PAYLOAD = b"{}"


def numbers(literal: str) -> list[int]:
    """The numbers of an array literal."""
    return [int(number) for number in literal[1:-1].split(",")] if len(literal) > len("{}") else []


def positions(values: Values) -> list[At]:
    """The positions that a statement names."""
    return list(zip(numbers(values["xids"]), numbers(values["seqs"]), strict=True))


def position(values: Values, name: str) -> At:
    """A position by its name."""
    return int(values[f"{name}_xid"]), values[f"{name}_seq"]


def ranges(database: Database, values: Values) -> list[tuple[At, At]]:
    """Where a statement looks: after a position, and below a transaction that is none of another cluster's."""
    after = zip(numbers(values["from_xids"]), numbers(values["from_seqs"]), strict=True)
    return [(at, (min(xid, database.xmax), 0)) for at, xid in zip(after, numbers(values["to_xids"]), strict=True)]


def fresh(database: Database, tx: Transaction, values: Values) -> Found:
    """`claim.sql` over `due_fresh.sql`: each range ends at its bound, the first message that is too far away."""
    due: list[Row] = []
    bounds: list[Bound] = []
    for after, below in ranges(database, values):
        bound = next(islice(database.between(after, below), values["walk"], None), None)
        bounds.append([None, None] if bound is None else list(bound.at))
        rows = database.between(after, below if bound is None else bound.at)
        due += _first((row for row in rows if _is_fresh(row, values)), tx, values["limit"] - len(due))
    return _taken(database, tx, values, due, (bounds,))


def _is_fresh(row: Row, values: Values) -> bool:
    if not row.ready or row.key is not None or row.exchange in values["except"]:
        return False
    return values["only"] is None or row.exchange in values["only"]


def _first(rows: Iterable[Row], tx: Transaction, limit: int) -> Iterator[Row]:
    """FOR UPDATE SKIP LOCKED LIMIT."""
    return islice((row for row in rows if tx.free(row)), limit)


def at(database: Database, tx: Transaction, values: Values) -> Found:
    """`claim.sql` over `due_at.sql`: what scans have found, if it is still claimable, and of an ordering key its head."""
    owned, now = _owned(database, tx, values), database.now()
    rows = (database.rows[at] for at in positions(values) if at in database.rows)
    mine = (row for row in rows if (row.key is None or row.lane in owned) and (row.locked_by is not None) == values["suspects"])
    return _taken(database, tx, values, _first((row for row in mine if row.is_due(now)), tx, values["limit"]))


def _owned(database: Database, tx: Transaction, values: Values) -> set[int]:
    """Lanes that are still the relay's by their epochs, locked FOR SHARE."""
    owned = set()
    for number, epoch in sorted(zip(values["lanes"], values["epochs"], strict=True)):
        place = database.lanes[number]
        tx.hold_lane(place, share=True)
        if (place.owner, place.epoch) == (values["relay_id"], epoch):
            owned.add(number)
    return owned


def by_id(database: Database, tx: Transaction, values: Values) -> Found:
    """`claim.sql` over `due_by_id.sql`."""
    now = database.now()
    rows = (row for row in database.between((-1, 0), LAST) if row.id in values["ids"] and row.key is None and row.is_due(now))
    return _taken(database, tx, values, _first(rows, tx, values["limit"]))


def _taken(database: Database, tx: Transaction, values: Values, found: Iterable[Row], bounds: tuple[list[Bound], ...] = ()) -> Found:
    """`claim.sql`: lock what is due up to the bytes, at least one message."""
    due, snapshot, now = list(found), database.snapshot, database.now()
    for row in due:
        tx.hold(row)
    chosen: list[Row] = []
    before = 0
    for row in sorted(due, key=lambda row: row.at):
        if before < values["limit_bytes"]:
            chosen.append(row)
        before += row.size
    refused = [row for row in chosen if row.kept]
    if refused and not values.get("one_by_one"):
        raise StoreError("A trigger refuses it.", refused=True)
    told = [(*row.at, row.id, row.exchange, "P0001", "No.") for row in refused]
    header = (snapshot, len(due), now, json.dumps(told) if told else None, *bounds)
    claimed = [row for row in chosen if row not in refused]
    tx.then(partial(_lock, database, claimed, values, now))
    return [(*_claimed(row, now), *header) for row in claimed] or [(None,) * 13 + header]


def _claimed(row: Row, now: float) -> tuple[Any, ...]:
    expires_in = None if row.expires_at is None else row.expires_at - now
    plain = (*row.at, row.id, row.exchange, row.routing_key, PAYLOAD, False, None, row.key, None, row.attempts + 1)
    return (*plain, expires_in, row.lane)


def _lock(database: Database, chosen: list[Row], values: Values, now: float) -> None:
    for row in chosen:
        database.watch.locked(row, values["relay_id"])
        database.lock(row, now + values["lock_seconds"], values["token"], values["relay_id"])
        row.attempts += 1


def _one_by_one(claim: Claiming, database: Database, tx: Transaction, values: Values) -> Found:
    """`claim_one_by_one.sql`: past what a trigger refuses."""
    return claim(database, tx, {**values, "one_by_one": True})


CLAIMS: dict[str, Claiming] = {
    "fresh": fresh,
    "late": fresh,
    "waiting": at,
    "suspect": at,
    "ordered": at,
    "by_id": by_id,
}
"""`late`: of transactions that have ended below the head as well. What is claimed by its position has three sources."""


CLAIMS |= {f"{name} one by one": partial(_one_by_one, claim) for name, claim in CLAIMS.items()}


def source_of(name: str, values: Values) -> str:
    """The claim that a statement of that name is."""
    if name.endswith(" one by one"):
        return f"{source_of(name.removesuffix(' one by one'), values)} one by one"
    if name == "at":
        return "suspect" if values["suspects"] else "ordered" if values["lanes"] else "waiting"
    return "late" if name == "fresh" and "," in values["from_xids"] else name
