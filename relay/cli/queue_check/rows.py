"""Classifies one message for `relay check`: its state, and why no relay will find it. No I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

State = Literal["locked", "paused", "blocked", "waiting", "claimable"]
WaitState = Literal["ready", "scheduled", "retrying", "locked", "paused", "limited", "parked", "blocked"]
Kind = Literal["fresh", "waiting", "suspect", "key", "lock"]
"""What must happen to a message next: a claim, named after the scan that finds the message, or the end of a lock."""

FAR = 10 * 366 * 86_400.0
"""Ten years in seconds: a time that is further ahead must be a mistake."""
LEFT = (0, 0)
"""Every scan of a relay begins after this position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One row of `check_page.sql`; times are seconds since 1970."""

    xid: str
    seq: int
    id: str
    exchange: str
    ordering_key: str | None
    attempts: int
    available_at: float | None
    lock_ends_at: float | None
    locked_by: int | None
    over: bool
    abandoned: bool
    foreign_id: bool
    lane: int | None
    key_lane: int | None
    lane_known: bool | None
    indexed: bool
    head: bool
    held: bool
    paused: bool
    limited: bool
    session: int | None
    clock: float

    @property
    def position(self) -> tuple[int, int]:
        """The message's place in claim order."""
        return int(self.xid), self.seq

    @property
    def state(self) -> State:
        """The message's state; if several states apply, the first of them."""
        if self.lock_ends_at is not None:
            return "locked"
        if self.paused:
            return "paused"
        if self.held or not self.head:
            return "blocked"
        return "claimable" if self.available_at is None or self.available_at <= self.clock else "waiting"

    @property
    def wait_state(self) -> WaitState:
        """The state as `relay list` names it."""
        if self.state == "blocked":
            return "parked" if self.held else "blocked"
        if self.state == "waiting":
            return "retrying" if self.attempts else "scheduled"
        if self.state == "claimable":
            return "limited" if self.limited else "ready"
        return self.state

    @property
    def kind(self) -> Kind | None:
        """What a relay must do with the message next; None while the message waits for a time, an operator or a limit."""
        if self.over:
            return "lock"
        if self.state != "claimable" or self.limited:
            return None
        if self.ordering_key is not None:
            return "key"
        if self.locked_by is not None:
            return "suspect"
        return "fresh" if self.available_at is None else "waiting"

    def is_as(self, before: QueueRow) -> bool:
        """Whether nothing was done to the message since `before` was read."""
        return (self.attempts, self.available_at, self.lock_ends_at, self.locked_by) == (
            before.attempts, before.available_at, before.lock_ends_at, before.locked_by,
        )  # fmt: skip


def why_lost(row: QueueRow) -> str | None:
    """Why no relay will find the message, and what to do; None if a relay will find it in time."""
    return _misplaced(row) or _wrong_key_state(row) or _too_far_ahead(row)


def why_left(row: QueueRow, since: datetime) -> str:
    """Why the relays did not touch a message although they had time to find it, and what to do."""
    if row.session is not None:
        return f"{holder(row.session)} keeps the row locked: end that transaction"
    what = "claimed it" if row.lock_ends_at is None else f"freed it (its lock ended {when(row.lock_ends_at)})"
    return f"nothing has {what} since {since:%H:%M:%S}Z: see `relay status`, else restart the relays and report this"


def holder(session: int) -> str:
    """The session or transaction that has a row locked, and the view that lists it."""
    return f"session {session} (pg_stat_activity)" if session else "a prepared transaction (pg_prepared_xacts)"


def _misplaced(row: QueueRow) -> str | None:
    if row.foreign_id:
        return f"its transaction id {row.xid} is of another cluster: run `relay migrate`, which renumbers it or says what prevents that"
    if row.position <= LEFT:
        return "its position lies before the start of every scan: insert it again and delete this row"
    return None


def _wrong_key_state(row: QueueRow) -> str | None:
    """Why the state of a message's key blocks the message; None if it does not."""
    if row.ordering_key is None:
        return None
    if row.lane != row.key_lane:
        return f"its lane is {row.lane}, but its key has the lane {row.key_lane}: as the owner, set ordering_key = ordering_key in this row"
    if not row.lane_known:
        return f"queue_message_lane has no row for this message's lane: as the owner, insert lane {row.lane} there"
    if not row.indexed:
        return "the index of keys does not lead to it: as the owner, REINDEX INDEX CONCURRENTLY queue_message_ordering_key_idx"
    return None


def _too_far_ahead(row: QueueRow) -> str | None:
    free = "as the owner, set lock_expires_at and lock_token to NULL in this row"
    if row.lock_ends_at is None:
        if row.available_at is None or row.available_at <= row.clock + FAR:
            return None
        return f"it is to wait {_until(row.available_at)}: cancel it, or as the owner set available_at to NULL"
    if row.abandoned:
        return f"it is locked {_until(row.lock_ends_at)} by relay {row.locked_by}, which is not alive: {free}"
    return f"it is locked {_until(row.lock_ends_at)}: {free}" if row.lock_ends_at > row.clock + FAR else None


def _until(time: float) -> str:
    return "for ever" if time == math.inf else f"until {when(time)}"


def when(time: float) -> str:
    """The text of a time in UTC, from seconds since 1970."""
    if (found := moment(time)) is not None:
        return f"{found:%Y-%m-%d %H:%M:%S}Z"
    return "the year 10000 or later" if time > 0 else "long ago"


def moment(time: float) -> datetime | None:
    """A time in UTC, from seconds since 1970; None if Python has no such time."""
    try:
        return datetime.fromtimestamp(time, UTC)
    except (ValueError, OverflowError, OSError):
        return None
