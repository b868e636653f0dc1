"""What the statements do that look for messages and lock none, by the tables in memory; each names its file of `relay/queries`."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from tests.simulation.claims import Found, Values, numbers, position, positions, ranges
from tests.simulation.database import At, Database, Row, Transaction
from tests.simulation.sweeps import RENUMBERED


def scan_due(database: Database, tx: Transaction, values: Values) -> Found:
    """`scan.sql` over `scan_due.sql`; a time travels as its number."""
    del tx
    return _scan(database, islice(database.due(_time(values), position(values, "from")), values["walk"]), values)


def scan_left(database: Database, tx: Transaction, values: Values) -> Found:
    """`scan.sql` over `scan_left.sql`."""
    del tx
    rows = database.between(position(values, "from"), (sys.maxsize, 0))
    return _scan(database, islice(rows, values["walk"]), values)


class Seen(NamedTuple):
    """A message that a scan returns: its place in the walk, and what it is."""

    place: int
    kind: str
    row: Row


def _scan(database: Database, rows: Iterator[Row], values: Values) -> Found:
    walked = list(rows)
    open_ = [(place, row) for place, row in enumerate(walked, 1) if _is_open(database, row, values)]
    single = [Seen(place, kind, row) for place, row in open_ if row.key is None and (kind := _kind(row)) and _has_room(kind, row, values)]
    single = single[: values["most"]]
    keys = {row.key: Seen(place, "key", row) for place, row in reversed(open_) if row.key is not None and row.lane in values["lanes"]}
    over = [Seen(place, "expired", row) for place, row in enumerate(walked, 1) if _may_be_over(database, row, values)]
    full = len(single) == values["most"]
    cut = full or len(walked) == values["walk"]
    end = _end(walked, single[-1].place if full else len(walked))
    *reached, time = end
    tail = (*(reached if cut else (None, None)), *(walked[0].at if walked else (None, None)), time, repr(database.now() - values["lag"]))
    found = sorted([*single, *keys.values(), *over])
    return [(kind, *row.at, row.exchange, row.key, row.lane, row.attempts, *tail) for _, kind, row in found] or [(None,) * 7 + tail]


def _end(walked: list[Row], place: int) -> tuple[int | None, int | None, str | None]:
    """Where the next page begins."""
    if not walked:
        return None, None, None
    last = walked[place - 1]
    return (*last.at, None if last.available_at is None else repr(last.available_at))


def _is_open(database: Database, row: Row, values: Values) -> bool:
    """It can be claimed, and no stream of its exchange has still to come to it."""
    if row.at[0] >= database.xmax or row.exchange in values["held"] or not row.is_due(database.now()):
        return False
    heads = dict(zip(values["apart"], positions({"xids": values["head_xids"], "seqs": values["head_seqs"]}), strict=True))
    return row.key is not None or row.available_at is not None or heads.get(row.exchange, position(values, "main")) >= row.at


def _has_room(kind: str, row: Row, values: Values) -> bool:
    return kind == "suspect" or row.exchange not in values["crowded"]


def _kind(row: Row) -> str:
    if row.locked_by is not None:
        return "suspect"
    return "stranded" if row.available_at is None else "waiting"


def _may_be_over(database: Database, row: Row, values: Values) -> bool:
    if row.lock_expires_at is None:
        return False
    return not 0 < row.lock_expires_at - database.now() <= 2 * values["lock_seconds"]


def _time(values: Values) -> float:
    return float(values["after"])


def list_keys(database: Database, tx: Transaction, values: Values) -> Found:
    """`list_keys.sql`."""
    del tx
    rows = (row for after, below in ranges(database, values) for row in database.between(after, below, ordered=True))
    walked = list(islice(rows, values["walk"]))
    keys: dict[str | None, Row] = {}
    for row in walked:
        if row.ready and row.lane in values["lanes"]:
            keys.setdefault(row.key, row)
    last = walked[-1].at if len(walked) == values["walk"] else (None, None)
    found = [(key, first.lane, *first.at, database.snapshot, *last) for key, first in keys.items()]
    return found or [(None, None, None, None, database.snapshot, *last)]


def find_heads(database: Database, tx: Transaction, values: Values) -> Found:
    """`find_heads.sql`: by the bounds, and below them in the transactions that have ended since."""
    del tx
    bounds = zip(numbers(values["from_xids"]), numbers(values["from_seqs"]), strict=True)
    late: dict[int, list[int]] = {}
    for place, xid in zip(numbers(values["late_places"]), numbers(values["late_xids"]), strict=True):
        if database.ended(xid):
            late.setdefault(place, []).append(xid)
    ended = [xid for xid in numbers(values["running"]) if database.ended(xid)]
    renumbered = [RENUMBERED] if database.order and database.order[0][0] == RENUMBERED else []
    found: Found = []
    for place, (key, start) in enumerate(zip(values["keys"], bounds, strict=True), 1):
        head = _head(database, key, start, [*late.get(place, []), *(xid for xid in ended if xid < start[0]), *renumbered])
        if head is not None:
            ready = head.is_due(database.now()) and head.exchange not in values["except"] and key not in database.parked
            found.append((place, *head.at, head.lane, ready, head.exchange, head.locked_by is not None, head.attempts))
    return [(*row, database.snapshot) for row in found] or [(None,) * 8 + (database.snapshot,)]


def _head(database: Database, key: str, start: At, late: Iterable[int]) -> Row | None:
    keyed = database.by_key.get(key, [])
    place = bisect_left(keyed, start)
    first = [at for at in keyed[place : place + 1] if at[0] < database.xmax]
    below = [at for at in keyed if at[0] in late][:1] if late else []
    return database.rows[min(first + below)] if first or below else None


def look(database: Database, tx: Transaction, values: Values) -> Found:
    """`look.sql`."""
    del tx
    walk, end = values["walk"], (database.xmax, 0)
    ended = (any(database.ended(xid) for xid in numbers(values[name])) for name in ("pending", "lanes_pending"))
    plain = (row.ready and row.key is None for row in database.between(position(values, "head"), end))
    keyed = (row.ready and row.lane in values["lanes"] for row in database.between(position(values, "lanes_head"), end, ordered=True))
    due = (row.lock_expires_at is None and row.exchange not in values["held"] for row in database.due(_time(values)))
    return [(next(ended) or _some(plain, walk), next(ended) or _some(keyed, walk), _some(due, walk))]


def _some(found: Iterable[bool], walk: int) -> bool:
    """One is there, or so many were looked at that there may be one."""
    looked = list(islice(found, walk))
    return any(looked) or len(looked) == walk


SCANS: dict[str, Callable[[Database, Transaction, Values], list[tuple[Any, ...]]]] = {
    "scan_due": scan_due,
    "scan_left": scan_left,
    "list_keys": list_keys,
    "find_heads": find_heads,
    "look": look,
}
