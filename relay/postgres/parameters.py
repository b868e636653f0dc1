"""How values become parameters of the relay's statements, and what those return is read; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.claims.bounds import Bound
from relay.literals import literal
from relay.message import SUCCESS, Archive, Batch, GiveBack, Position, Retry
from relay.policy import Policy
from relay.ports import Left, Row

PATIENT = 4
"""Attempts that must be allowed for messages to go in groups after their first lost lock: no bystander may run out of them."""


def at(name: str, position: Position) -> dict[str, object]:
    """Parameters of a position; an xid8 travels as text."""
    return {f"{name}_xid": str(position.xid), f"{name}_seq": position.seq}


def lock_of(policy: Policy) -> dict[str, object]:
    """Parameters of a claim: how long its lock holds, and whether what lost one may go in groups."""
    return {"lock_seconds": policy.lock_seconds, "trusted": int(policy.retry.max_attempts >= PATIENT)}


def probe(keys: Sequence[str], bounds: Sequence[Bound], held: Sequence[str]) -> dict[str, object]:
    """Parameters of a look for the heads of keys."""
    late = [(place, xid) for place, bound in enumerate(bounds, 1) for xid in bound.late]
    return {
        "keys": list(keys), "except": list(held), "now": None,
        "from_xids": literal([bound.start.xid for bound in bounds]), "from_seqs": literal([bound.start.seq for bound in bounds]),
        "late_places": literal([place for place, _ in late]), "late_xids": literal([xid for _, xid in late]),
    }  # fmt: skip


def positions_of(rows: Sequence[Row]) -> dict[str, object]:
    """Where claims stand."""
    return {"xids": literal([row.claim.xid for row in rows]), "seqs": literal([row.claim.seq for row in rows])}


def results_of(rows: Sequence[Row]) -> dict[str, object]:
    """Result, code and detail of each row; nothing at all where every row is a plain success."""
    if [row.outcome for row in rows].count(SUCCESS) == len(rows):
        return {"results": None, "codes": None, "details": None}
    outcomes = [row.outcome for row in rows if isinstance(row.outcome, Archive)]
    return {
        "results": [outcome.result.value for outcome in outcomes],
        "codes": [outcome.code or None for outcome in outcomes],
        "details": [_storable(outcome.detail) for outcome in outcomes],
    }


def settle_of(batch: Batch, rows: Sequence[Row], *, name: str, policy: Policy) -> dict[str, object]:
    """Parameters of a settle: what becomes of each row, under which lock token, and what the policy keeps of it.

    It waits for rows that other sessions hold, as long as its own session waits for any lock.
    """
    return {
        **positions_of(rows), **results_of(rows), "token": batch.token, "handled_by": name, "claimed_at": batch.claimed_at,
        "skip": False, "patience": None,
        "keep_successes": policy.keep_successes, "park_dead_keys": policy.park_dead_keys,
        "published": literal([row.published for row in rows]), "confirmed": literal([row.confirmed for row in rows]),
    }  # fmt: skip


def returns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Delay, whether the claim is given back, and what spoiled the attempt."""
    gone = [row.outcome for row in rows if isinstance(row.outcome, Retry | GiveBack)]
    return {
        "delays": [outcome.delay if isinstance(outcome, Retry) else 0.0 for outcome in gone],
        "given_back": [int(isinstance(outcome, GiveBack)) for outcome in gone],
        "errors": [_storable(f"{outcome.code}: {outcome.detail}" if outcome.code else "") for outcome in gone],
    }


def _storable(detail: str) -> str | None:
    """A text that PostgreSQL takes and that keeps the row narrow."""
    return detail.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:1000] or None


def left_of(rows: Sequence[Row], left: Sequence[tuple[int, int, bool]]) -> list[Left]:
    """The rows that a statement did not write, as it returns them."""
    ids = ids_of(rows, [(xid, seq) for xid, seq, _ in left])
    return [Left(id_, busy) for id_, (*_, busy) in zip(ids, left, strict=True)]


def ids_of(rows: Sequence[Row], lost: Sequence[tuple[int, int]]) -> list[str]:
    """Ids of the claims at these positions."""
    if not lost:
        return []
    ids = {(row.claim.xid, row.claim.seq): row.claim.id for row in rows}
    return [ids[position] for position in lost]
