"""Scans the whole queue in pages: counts messages by state, and lists those that no relay will find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from relay.cli.queue_check.recheck import Recheck
from relay.cli.queue_check.rows import QueueRow, State, why_lost

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

PAGE: Final = 10_000
"""Messages that one statement reads."""
MOST_NAMED: Final = 1000
"""The most lost messages that are named; further ones are only counted."""
FIRST: Final = (0, -(1 << 63))
"""Before every position."""

Say = Callable[[int], None]
"""A function that reports the number of messages scanned so far."""


@dataclass
class ScanResult:
    """The findings of a scan."""

    walked: int = 0
    states: Counter[State] = field(default_factory=Counter)
    held_keys: set[str] = field(default_factory=set)
    """Parked keys under which messages wait."""
    held: int = 0
    """The number of messages with these keys."""
    limited: int = 0
    """The number of claimable messages of limited exchanges, which are sent at the limit's rate."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """The first lost messages, in the form in which they are shown."""
    lost_in_all: int = 0
    settling: list[dict[str, Any]] = field(default_factory=list)
    """Messages that a living relay has claimed but cannot settle, because another session has locked their rows."""
    watch: Recheck = field(default_factory=Recheck)

    def meet(self, row: QueueRow) -> None:
        """Count a message, and keep it if it is lost or has to be watched."""
        self.walked += 1
        if reason := why_lost(row):
            self.lose(row, reason)
            return
        self.states[row.state] += 1
        if row.held and row.ordering_key is not None:
            self.held += 1
            self.held_keys.add(row.ordering_key)
        self.limited += row.limited and row.state == "claimable"
        self.watch.put(row)

    def lose(self, row: QueueRow, reason: str) -> None:
        """Record a lost message with the reason why no relay will find it."""
        self.lost_in_all += 1
        if len(self.lost) < MOST_NAMED:
            self.lost.append(_named(row, reason))

    def settles(self, row: QueueRow, reason: str) -> None:
        """Record a message with the reason why its relay cannot settle it; the number is bounded by that of the watched messages."""
        self.settling.append(_named(row, reason))


def _named(row: QueueRow, reason: str) -> dict[str, Any]:
    place = f"{row.xid}/{row.seq}"
    return {"id": row.id, "position": place, "exchange": row.exchange, "ordering_key": row.ordering_key, "reason": reason}


def walk(opened: OperatorSession, say: Say) -> ScanResult:
    """Read every message once."""
    found = ScanResult()
    for row in rows_after(opened, FIRST):
        found.meet(row)
        if found.walked % PAGE == 0:
            say(found.walked)
    return found


def look_again(opened: OperatorSession, watch: Recheck) -> dict[str, QueueRow]:
    """The watched messages that are still in the queue, by id."""
    (first_xid, first_seq), last = watch.span
    again = {}
    for row in rows_after(opened, (first_xid, first_seq - 1)):
        if row.position > last:
            break
        if watch.knows(row):
            again[row.id] = row
    return again


def rows_after(opened: OperatorSession, after: tuple[int, int]) -> Iterator[QueueRow]:
    """The rows of the queue after a place, in claim order."""
    page: list[dict[str, Any]] = [{}] * PAGE
    while len(page) == PAGE:
        page = opened.rows("check_page", after_xid=str(after[0]), after_seq=after[1], most=PAGE)
        for row in page:
            seen = QueueRow(**row)
            after = seen.position
            yield seen
