"""Messages that `relay check` watches between its two scans: relays must claim them. Finds the messages that were skipped. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from relay.cli.queue_check.rows import Kind, QueueRow

MAX_OF_GROUP = 1000
"""The most messages of one group that are watched: the first in claim order."""
MAX_IN_ALL = 100_000

Group = tuple[Kind, str]
"""Messages that are claimed in one order: a kind and an exchange. The exchange is empty if the order spans all exchanges."""
Claimed = Callable[[Collection[str]], Collection[str]]
"""A function that gets ids of messages that have left the queue, and returns the ids that a relay has claimed."""


class Recheck:
    """Messages of the first scan that could be claimed or released at once."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[str, QueueRow]] = {}
        self._met: Counter[Group] = Counter()
        self._ids: set[str] = set()

    def put(self, row: QueueRow) -> None:
        """Watch a message if something must happen to it, up to the limits."""
        if (group := _group(row)) is None:
            return
        self._met[group] += 1
        if self._met[group] <= MAX_OF_GROUP and len(self._ids) < MAX_IN_ALL:
            self._groups.setdefault(group, {})[row.id] = row
            self._ids.add(row.id)

    def __bool__(self) -> bool:
        """Whether any message is watched."""
        return bool(self._ids)

    def left_out(self, *, watched: bool) -> int:
        """The number of messages without a verdict: those beyond the watch's capacity, or all if none was watched."""
        return self._met.total() - len(self._ids) * watched

    @property
    def span(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The first and the last position that is watched."""
        positions = [row.position for rows in self._groups.values() for row in rows.values()]
        return min(positions), max(positions)

    def knows(self, row: QueueRow) -> bool:
        """Whether a message is watched."""
        return row.id in self._ids

    def passed_over(self, now: Mapping[str, QueueRow], silent: Collection[str], claimed: Claimed) -> Iterator[QueueRow]:
        """The messages that should have changed, but did not.

        Args:
            now: the watched messages that are still in the queue, by id.
            silent: exchanges whose messages wait for the broker.
            claimed: finds out which of the missing messages a relay has claimed.
        """
        split = {group: _by_change(rows, now, silent) for group, rows in self._groups.items()}
        fresh = [row for (kind, _), (_, changed) in split.items() if kind == "fresh" for row in changed]
        for group, (unchanged, changed) in split.items():
            # If no message of an exchange was claimed, relays may still be claiming fresh messages of other exchanges that come first.
            moved = changed or (fresh if group[0] == "fresh" else [])
            yield from (now[row.id] for row in self._skipped(group, unchanged, moved, now, claimed))

    def _skipped(
        self, group: Group, unchanged: list[QueueRow], moved: list[QueueRow], now: Mapping[str, QueueRow], claimed: Claimed
    ) -> Iterable[QueueRow]:
        if not moved or group[0] == "lock":
            # No progress at all. Expired locks are all released within one page of a scan.
            return unchanged
        if not unchanged or group[0] == "suspect":
            return []
        known = claimed([row.id for row in moved if row.id not in now])
        touched = [row for row in moved if row.id in now or row.id in known]
        if group[0] != "fresh" and self._met[group] > MAX_OF_GROUP:
            # These messages have no fixed order: while some are claimed, the others may still wait for their turn.
            return []
        return [row for row in unchanged if any(_is_always_before(row, other) for other in touched)]


def _by_change(rows: Mapping[str, QueueRow], now: Mapping[str, QueueRow], silent: Collection[str]) -> tuple[list[QueueRow], list[QueueRow]]:
    """The unchanged messages, and the changed ones. Messages of silent exchanges are left out."""
    answering = [row for row in rows.values() if row.exchange not in silent]
    same = {row.id for row in answering if row.id in now and now[row.id].is_as(row)}
    return [row for row in answering if row.id in same], [row for row in answering if row.id not in same]


def _group(row: QueueRow) -> Group | None:
    if row.kind is None:
        return None
    return row.kind, "" if row.kind in {"suspect", "lock"} else row.exchange


def _is_always_before(row: QueueRow, other: QueueRow) -> bool:
    """Whether every scan reaches `row` before `other`, both by position and by due time."""
    since = (row.available_at or 0.0, other.available_at or 0.0)
    return row.position < other.position and since[0] <= since[1] and row.lane == other.lane
