"""What the tables of a queue hold, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.simulation.transaction import Transaction

At = tuple[int, int]
START: At = (0, 0)


@dataclass(slots=True, eq=False, repr=False)
class Row:
    """One message, with what the ledger wants to know of it."""

    id: str
    exchange: str
    routing_key: str = ""
    key: str | None = None
    lane: int | None = None
    available_at: float | None = None
    expires_at: float | None = None
    size: int = 2
    at: At = START
    lock_expires_at: float | None = None
    lock_token: str | None = None
    locked_by: int | None = None
    attempts: int = 0
    last_error: str | None = None
    tx: Transaction | None = None
    """The transaction whose change is not committed yet. Others see the row unchanged, and locked."""
    visible: float = 0
    """When others could first see it, in commits: never until it is certain that every relay sees it at its place."""
    low: bool = False
    """It came to stand before what relays had looked at, or its wait had been over for long when it was committed: only whole rounds of the
    scrub find it."""
    since: float = 0.0
    """The moment when others could see it first, or when it became the head of its key."""
    locked_at: float = 0.0
    """The moment when it was locked or its lock renewed."""
    held_until: float = 0.0
    """The moment when a transaction of no relay unlocks it, or has unlocked it."""
    kept: bool = False
    """A trigger refuses its UPDATE."""
    free_at: float = 0.0
    """The moment when it last lost a lock whose time was over."""

    def __repr__(self) -> str:
        state = f"locked by {self.locked_by} until {self.lock_expires_at}" if self.lock_expires_at else f"due at {self.available_at}"
        return f"<{self.id[:8]} {self.exchange}/{self.routing_key} key {self.key} at {self.at}, {self.attempts} attempts, {state}>"

    @property
    def ready(self) -> bool:
        """It is not locked and has never had to wait."""
        return self.lock_expires_at is None and self.available_at is None

    def is_due(self, now: float) -> bool:
        """Not locked, and its wait is over."""
        return self.lock_expires_at is None and (self.available_at is None or self.available_at <= now)


class Archived(NamedTuple):
    """One row of the archive."""

    row: Row
    result: str
    code: str | None
    handled_by: str
    claimed_at: float | None


@dataclass(slots=True)
class RelayRow:
    """A relay's own row."""

    heartbeat_at: float
    started_at: str = ""
    left: bool = False
    able: bool = False
    """It says that it reaches the broker."""


@dataclass(slots=True, eq=False)
class Lane:
    """A lane's owner, its epoch, and who has locked its row."""

    number: int
    owner: int | None = None
    epoch: int = 0
    tx: Transaction | None = None
    sharers: dict[Transaction, None] = field(default_factory=dict)


@dataclass(slots=True)
class ClockSeen:
    """What sweeps saw of the server's clock: `queue_message_clock_seen`."""

    seen_at: float = -math.inf
    moved_at: float | None = None
    until: float = -math.inf
