"""Turns values into parameters of the relay's statements, and reads the results of these statements; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay.claims.key_bounds import KeyBound
from relay.engine.policy import Policy
from relay.message import SUCCESS, Archive, Batch, GiveBack, Position, Range, Retry
from relay.ports import SUSPECT, At, ById, DuePlace, Page, RowLeft, ScanFinding, SettleRow, Wanted
from relay.postgres.array_literal import literal

PATIENT = 4
"""From this `max_attempts` on, messages are claimed in groups after their first lost lock: messages that are not the cause must have
attempts left."""


def at(name: str, position: Position) -> dict[str, object]:
    """Parameters of a position; an xid8 is passed as text."""
    return {f"{name}_xid": str(position.xid), f"{name}_seq": position.seq}


def trusted(attempts: int, policy: Policy) -> bool:
    """Whether a message that has lost a lock may be sent together with others."""
    return attempts <= int(policy.retry.max_attempts >= PATIENT)


def ranges_of(ranges: Sequence[Range]) -> dict[str, object]:
    """Parameters of ranges of positions."""
    return {
        "from_xids": literal([one.after.xid for one in ranges]), "from_seqs": literal([one.after.seq for one in ranges]),
        "to_xids": literal([one.below for one in ranges]),
    }  # fmt: skip


def wanted_of(wanted: Wanted) -> tuple[str, dict[str, object]]:
    """The statement of a claim, and the parameters that select its messages."""
    match wanted:
        case At(positions, source, lanes):
            return "at", {**at_all(positions), "lanes": list(lanes), "epochs": list(lanes.values()), "suspects": source == SUSPECT}
        case ById(ids):
            return "by_id", {"ids": list(ids)}
    return "fresh", {
        **ranges_of(wanted.ranges),
        "walk": wanted.walk,
        "except": list(wanted.excluded),
        "only": None if wanted.only is None else list(wanted.only),
    }  # fmt: skip


def bounds_of(header: Sequence[Any]) -> list[Position | None]:
    """The bounds in the header of a claim of fresh messages; any other claim has no bounds."""
    return [None if xid is None else Position(xid, seq) for xid, seq in header[0] or ()] if header else []


def heads_of(main: Position, heads: Mapping[str, Position]) -> dict[str, object]:
    """Parameters for the heads of the main stream and of each exchange with its own stream."""
    positions = at_all(list(heads.values()))
    return {**at("main", main), "apart": list(heads), "head_xids": positions["xids"], "head_seqs": positions["seqs"]}


def page_of(rows: Sequence[tuple[Any, ...]], policy: Policy) -> Page:
    """Read one page of a scan."""
    findings = [
        ScanFinding(kind, Position(xid, seq), exchange, key, lane, trusted(attempts, policy))
        for kind, xid, seq, exchange, key, lane, attempts, *_ in rows
        if kind is not None
    ]
    xid, seq, first_xid, first_seq, time, past = rows[0][7:]
    reached = None if xid is None else Position(xid, seq)
    first = None if first_xid is None else Position(first_xid, first_seq)
    return Page(findings, reached, first, DuePlace(past) if reached is None else DuePlace(time, reached))


def probe(keys: Sequence[str], bounds: Sequence[KeyBound], running: Sequence[int], paused: Sequence[str]) -> dict[str, object]:
    """Parameters of a search for the heads of keys."""
    late = [(place, xid) for place, bound in enumerate(bounds, 1) for xid in bound.late]
    positions = at_all([bound.start for bound in bounds])
    return {
        "keys": list(keys), "except": list(paused), "now": None, "from_xids": positions["xids"], "from_seqs": positions["seqs"],
        "late_places": literal([place for place, _ in late]), "late_xids": literal([xid for _, xid in late]), "running": literal(running),
    }  # fmt: skip


def at_all(positions: Sequence[Position]) -> dict[str, object]:
    """Parameters of many positions."""
    return {"xids": literal([one.xid for one in positions]), "seqs": literal([one.seq for one in positions])}


def positions_of(rows: Sequence[SettleRow]) -> dict[str, object]:
    """Parameters of the positions of claims."""
    return {"xids": literal([row.claim.xid for row in rows]), "seqs": literal([row.claim.seq for row in rows])}


def results_of(rows: Sequence[SettleRow]) -> dict[str, object]:
    """Result, code and detail of each row; None for the lists if every row is a plain success."""
    if [row.outcome for row in rows].count(SUCCESS) == len(rows):
        return {"results": None, "codes": None, "details": None}
    outcomes = [row.outcome for row in rows if isinstance(row.outcome, Archive)]
    return {
        "results": [outcome.result.value for outcome in outcomes],
        "codes": [outcome.code or None for outcome in outcomes],
        "details": [_storable(outcome.detail) for outcome in outcomes],
    }


def settle_of(batch: Batch, rows: Sequence[SettleRow], *, name: str, policy: Policy) -> dict[str, object]:
    """Parameters of a settle: the outcome of each row, the lock token, and what the policy archives.

    With these parameters the settle waits for rows that other sessions have locked, for as long as its session waits for any lock.
    """
    return {
        **positions_of(rows), **results_of(rows), "token": batch.token, "handled_by": name, "claimed_at": batch.claimed_at,
        "skip": False, "patience": None,
        "keep_successes": policy.keep_successes, "park_dead_keys": policy.park_dead_keys,
        "published": literal([row.published for row in rows]), "confirmed": literal([row.confirmed for row in rows]),
    }  # fmt: skip


def returns_of(rows: Sequence[SettleRow]) -> dict[str, list[Any]]:
    """Delay of each row, whether its outcome is `GiveBack`, and why the attempt failed."""
    released = [row.outcome for row in rows if isinstance(row.outcome, Retry | GiveBack)]
    return {
        "delays": [outcome.delay if isinstance(outcome, Retry) else 0.0 for outcome in released],
        "given_back": [int(isinstance(outcome, GiveBack)) for outcome in released],
        "errors": [_storable(f"{outcome.code}: {outcome.detail}" if outcome.code else "") for outcome in released],
    }


def _storable(detail: str) -> str | None:
    """The text in a form that PostgreSQL can store, and short enough to keep the row small."""
    return detail.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:1000] or None


def left_of(rows: Sequence[SettleRow], left: Sequence[tuple[int, int, bool]]) -> list[RowLeft]:
    """The rows that a statement did not write, as it returns them."""
    ids = ids_of(rows, [(xid, seq) for xid, seq, _ in left])
    return [RowLeft(id_, busy) for id_, (*_, busy) in zip(ids, left, strict=True)]


def ids_of(rows: Sequence[SettleRow], lost: Sequence[tuple[int, int]]) -> list[str]:
    """Ids of the claims at these positions."""
    if not lost:
        return []
    ids = {(row.claim.xid, row.claim.seq): row.claim.id for row in rows}
    return [ids[position] for position in lost]
