"""What the statements of claims and of their keys do, by the tables in memory; each names its file of `relay/postgres/queries`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any

from tests.simulation.database import At, Database, Row, Transaction, lane

Values = Mapping[str, Any]
Found = list[tuple[Any, ...]]
Select = Callable[[Database, Transaction, Values], list[Row]]
Walk = Callable[[Database, Values], Iterator[tuple[Row, bool]]]
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


def claim(select: Select, database: Database, tx: Transaction, values: Values) -> Found:
    """`claim.sql` over one of `due_*.sql`: lock what is due up to the bytes, at least one message."""
    return _taken(database, tx, values, select(database, tx, values), ())


def walk(select: Walk, database: Database, tx: Transaction, values: Values) -> Found:
    """`claim.sql` over a walk and `step.sql`: look at so many messages, lock those that are wanted as long as there is room."""
    walked: list[Row] = []
    due: list[Row] = []
    for row, wanted in select(database, values):
        if len(walked) == values["walk"] or len(due) == values["limit"]:
            break
        walked.append(row)
        if wanted and row.lock_expires_at is None and row.available_at is None and row.key is None and tx.free(row):
            due.append(row)
    full = len(walked) == values["walk"] and len(due) < values["limit"]
    return _taken(database, tx, values, due, (list(walked[-1].at) if full else None,))


def _taken(database: Database, tx: Transaction, values: Values, due: list[Row], reached: tuple[Any, ...]) -> Found:
    snapshot, now = database.snapshot, database.now()
    for row in due:
        tx.hold(row)
    header = (snapshot, len(due), now, *reached)
    chosen: list[Row] = []
    before = 0
    for row in sorted(due, key=lambda row: row.at):
        if before < values["limit_bytes"]:
            chosen.append(row)
        before += row.size
    if not chosen:
        return [(None,) * 12 + header]
    tx.then(partial(_lock, database, chosen, values, now))
    return [(*_claimed(row, now), *header) for row in chosen]


def _claimed(row: Row, now: float) -> tuple[Any, ...]:
    expires_in = None if row.expires_at is None else row.expires_at - now
    return (*row.at, row.id, row.exchange, row.routing_key, PAYLOAD, False, None, row.key, None, row.attempts + 1, expires_in)


def _lock(database: Database, chosen: list[Row], values: Values, now: float) -> None:
    for row in chosen:
        database.watch.locked(row, values["relay_id"])
        database.lock(row, now + values["lock_seconds"], values["token"], values["relay_id"])
        row.attempts += 1
    relay = database.relays.get(values["relay_id"])
    if relay is not None:
        relay.low = min(relay.low, chosen[0].at)


def _first(rows: Iterable[Row], tx: Transaction, limit: int) -> list[Row]:
    """FOR UPDATE SKIP LOCKED LIMIT."""
    found: list[Row] = []
    for row in rows:
        if len(found) == limit:
            break
        if tx.free(row):
            found.append(row)
    return found


def above_head(database: Database, tx: Transaction, values: Values) -> list[Row]:
    """`due_above_head.sql`."""
    left_out = values["except"]
    rows = database.above(position(values, "head"))
    return _first((row for row in rows if row.ready and row.key is None and row.exchange not in left_out), tx, values["limit"])


def pending(database: Database, tx: Transaction, values: Values) -> list[Row]:
    """`due_pending.sql`."""
    xids, left_out = numbers(values["pending"]), values["except"]
    rows = (row for row in database.of(xids) if row.ready and row.key is None and row.exchange not in left_out)
    return _first(rows, tx, values["limit"])


def _wanted(row: Row, values: Values) -> bool:
    """Of the exchange that is asked for, or of any but those that are left out."""
    return row.exchange == values["exchange"] if "exchange" in values else row.exchange not in values["except"]


def walk_above_head(database: Database, values: Values) -> Iterator[tuple[Row, bool]]:
    """`due_others_above_head.sql` and `due_exchange_above_head.sql`."""
    return ((row, _wanted(row, values)) for row in database.above(position(values, "head")))


def walk_pending(database: Database, values: Values) -> Iterator[tuple[Row, bool]]:
    """`due_others_pending.sql` and `due_exchange_pending.sql`."""
    reached = dict(zip_longest(numbers(values["pending"]), numbers(values["reached"]), fillvalue=0))
    return ((row, _wanted(row, values)) for row in database.of(reached) if row.at[1] > reached[row.at[0]])


def _asked_for(row: Row, values: Values) -> bool:
    """Of none of the exchanges that are left out, and of one of those alone where there are such."""
    return row.exchange not in values["except"] and (values["only"] is None or row.exchange in values["only"])


def waiting(database: Database, tx: Transaction, values: Values) -> list[Row]:
    """`due_waiting.sql`."""
    rows = (row for row in database.over(ordered=False) if _asked_for(row, values))
    return _first(rows, tx, values["limit"])


def _owned(database: Database, tx: Transaction, values: Values, wanted: Iterable[int]) -> set[int]:
    """Lanes that are still the relay's by their epochs, locked FOR SHARE."""
    named = dict(zip(values["lanes"], values["epochs"], strict=True))
    owned = set()
    for number in sorted(named.keys() & set(wanted)):
        place = database.lanes[number]
        tx.hold_lane(place, share=True)
        if (place.owner, place.epoch) == (values["relay_id"], named[number]):
            owned.add(number)
    return owned


def suspect(database: Database, tx: Transaction, values: Values) -> list[Row]:
    """`due_suspect.sql`: in groups after a first lost lock, alone after more."""
    rows = (row for row in database.back() if _asked_for(row, values))
    heads = (row for row in rows if row.key is None or (lane(row.key) in values["lanes"] and _is_free_head(database, row)))
    back = _first(heads, tx, values["limit"])
    owned = _owned(database, tx, values, {lane(row.key) for row in back if row.key is not None})
    ours = [row for row in back if row.key is None or lane(row.key) in owned]
    once = [row for row in ours if row.attempts <= values["trusted"]]
    return once or ours[:1]


def _is_free_head(database: Database, row: Row) -> bool:
    return row.key not in database.parked and database.head_of(row.key or "") is row


def ordered(database: Database, tx: Transaction, values: Values) -> list[Row]:
    """`due_ordered.sql`: the named heads, if they are still ready and their lanes ours."""
    owned, now = _owned(database, tx, values, values["lanes"]), database.now()
    rows = [database.rows[at] for at in positions(values) if at in database.rows]
    return [row for row in rows if lane(row.key) in owned and _is_due(row, now) and tx.free(row)]


def _is_due(row: Row, now: float) -> bool:
    return row.lock_expires_at is None and (row.available_at is None or (row.available_at <= now and row.locked_by is None))


def list_keys(database: Database, tx: Transaction, values: Values) -> Found:
    """`list_keys.sql`."""
    del tx
    most, lanes, xids = values["most"], frozenset(values["lanes"]), numbers(values["pending"])
    late = list(dict.fromkeys(row.key for row in _keyed(database.of(xids, ordered=True), lanes)))[:most]
    ahead = list(islice(_keyed(database.above(position(values, "head"), ordered=True), lanes), most))
    keys = list(dict.fromkeys([*late, *(row.key for row in ahead)]))
    last = ahead[-1].at if ahead else (None, None)
    return [(database.snapshot, keys or None, len(late) == most, len(ahead) == most, *last)]


def _keyed(ordered: Iterable[Row], lanes: Collection[int]) -> Iterator[Row]:
    """Those of these lanes that are ready."""
    return (row for row in ordered if row.lock_expires_at is None and row.available_at is None and lane(row.key) in lanes)


def list_waiting_keys(database: Database, tx: Transaction, values: Values) -> Found:
    """`list_waiting_keys.sql`; a time travels as its number."""
    del tx
    after = float(values["after"].replace("infinity", "inf"))
    lanes, left_out, seen = values["lanes"], values["except"], values["seen"]
    rows = (row for row in database.over(ordered=True) if lane(row.key) in lanes and row.exchange not in left_out)
    page = list(islice((row for row in rows if (row.available_at or 0.0) >= after), seen, seen + values["most"]))
    if not page:
        return [(None, False, None, 0)]
    last = max(row.available_at or 0.0 for row in page)
    seen = sum(row.available_at == last for row in page) + (seen if last == after else 0)
    return [(sorted({row.key for row in page}), len(page) == values["most"], repr(last), seen)]


def find_heads(database: Database, tx: Transaction, values: Values) -> Found:
    """`find_heads.sql`: by the bounds, and below them in the transactions that have ended since."""
    del tx
    bounds = zip(numbers(values["from_xids"]), numbers(values["from_seqs"]), strict=True)
    late: dict[int, list[int]] = {}
    for place, xid in zip(numbers(values["late_places"]), numbers(values["late_xids"]), strict=True):
        if database.ended(xid):
            late.setdefault(place, []).append(xid)
    found: Found = []
    for place, (key, start) in enumerate(zip(values["keys"], bounds, strict=True), 1):
        head = _head(database, key, start, late.get(place, ()))
        if head is not None:
            ready = _is_due(head, database.now()) and head.exchange not in values["except"] and key not in database.parked
            found.append((place, *head.at, head.lock_expires_at is not None, ready, head.exchange, None))
    return [(*row[:-1], database.snapshot) for row in found] or [(None,) * 6 + (database.snapshot,)]


def _head(database: Database, key: str, start: At, late: Iterable[int]) -> Row | None:
    keyed = database.by_key.get(key, [])
    place = bisect_left(keyed, start)
    first = keyed[place : place + 1]
    below = [at for at in keyed if at[0] in late][:1] if late else []
    return database.rows[min(first + below)] if first or below else None


def look(database: Database, tx: Transaction, values: Values) -> Found:
    """`look.sql`."""
    del tx
    ended = (any(database.ended(xid) for xid in numbers(values[name])) for name in ("pending", "lanes_pending"))
    plain = (row.ready and row.key is None and row.exchange not in values["except"] for row in database.above(position(values, "head")))
    head = position(values, "lanes_head")
    keyed = (True for _ in _keyed(database.above(head, ordered=True), frozenset(values["lanes"])))
    due = chain(database.over(ordered=False), database.over(ordered=True), database.back())
    over = (row.exchange not in values["held"] for row in due)
    return [(next(ended) or any(plain), next(ended) or any(keyed), any(over))]


CLAIMS = {
    "above_head": partial(claim, above_head),
    "pending": partial(claim, pending),
    "others_above_head": partial(walk, walk_above_head),
    "others_pending": partial(walk, walk_pending),
    "exchange_above_head": partial(walk, walk_above_head),
    "exchange_pending": partial(walk, walk_pending),
    "waiting": partial(claim, waiting),
    "suspect": partial(claim, suspect),
    "ordered": partial(claim, ordered),
}
