"""The numbers of a ledger, and a sentence for each wrong number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a ledger. Tuples have ids of messages and should be empty; each committed message counts in exactly one sum."""

    committed: int
    rolled_back: int
    delivered: int
    dead: int
    """Messages that were not delivered, and were archived as `rejected`, `failed` or `lock_expired`."""
    discarded: int
    """Messages that were not delivered, because they were discarded on purpose."""
    accepted: int
    """Messages that were not delivered, although archived as success: unroutable messages under a policy that accepts them."""
    waiting: int
    """Messages that were not delivered, and are still in the queue."""
    lost: tuple[str, ...]
    """Committed messages that were neither delivered, nor are in the queue, nor are archived with a result that explains this."""
    phantom: tuple[str, ...]
    """Messages that were delivered, queued or archived, although the producer rolled them back or never recorded them."""
    success_without_delivery: tuple[str, ...]
    delivered_not_success: tuple[str, ...]
    """Messages that were delivered, and were archived with another result than success."""
    unarchived: tuple[str, ...]
    """Messages that were delivered, and are neither in the archive nor in the queue."""
    archived_twice: tuple[str, ...]
    unexpected_result: tuple[str, ...]
    """Messages that were archived with another result than the producer expects."""
    early: tuple[str, ...]
    """Messages that were delivered before `not_before`."""
    order_breaks: tuple[str, ...]
    """Messages whose first delivery came after that of a later message of the same ordering key."""
    duplicates: int
    """Deliveries beyond the first of each message."""
    faults: int
    """The number of recorded faults."""
    in_flight: int
    """The sum of the messages in flight at the faults, which is the most duplicates that the faults explain."""
    unexplained: tuple[str, ...]
    """Messages that were delivered more than once, although they were in flight at no fault.

    They are found only if messages in flight are known by id.
    """
    recovery_seconds: float | None
    """The longest time from a fault until a message that was in flight is archived; None without a fault.

    If several faults hit a message, the time counts from the last of them.
    """
    messages_per_second: float
    """First deliveries a second, from the first to the last."""

    @property
    def extra_per_in_flight(self) -> float:
        """Duplicates for each message in flight at a fault; at-least-once delivery allows at most 1."""
        return self.duplicates / self.in_flight if self.in_flight else float(self.duplicates)

    @property
    def adds_up(self) -> bool:
        """Whether every committed message is in one of the sums."""
        return self.committed == self.delivered + self.dead + self.discarded + self.accepted + self.waiting

    def mismatches(self, *, may_wait: int = 0, recovery_limit: float | None = None, archive_all: bool = True) -> list[str]:
        """One sentence for each wrong number; empty if all numbers are right.

        Args:
            may_wait: how many messages may still be in the queue.
            recovery_limit: the highest allowed `recovery_seconds`.
            archive_all: whether successes are archived too (setting `archive` = all).
        """
        found = [_sentence(text, ids) for text, ids in self._empty_unless_wrong(archive_all=archive_all) if ids]
        if not self.adds_up:
            found.insert(
                0, f"{self.committed} messages were committed, and {self.committed - len(self.lost)} of them can be accounted for."
            )
        if self.waiting > may_wait:
            found.append(f"{self.waiting} messages are still in the queue; at most {may_wait} may be.")
        if self.duplicates > self.in_flight:
            found.append(f"{self.duplicates} deliveries are duplicates; the faults explain at most {self.in_flight}.")
        if recovery_limit is not None and self.recovery_seconds is not None and self.recovery_seconds > recovery_limit:
            found.append(
                f"Messages in flight at a fault took {self.recovery_seconds:.1f} s to be settled; {recovery_limit:g} s are allowed."
            )
        return found

    def _empty_unless_wrong(self, *, archive_all: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "committed, but lost: neither delivered nor dead nor waiting", self.lost
        yield "seen though no committed transaction inserted them (phantoms)", self.phantom
        yield "archived as a success without a delivery", self.success_without_delivery
        yield "delivered, but archived with another result than success", self.delivered_not_success
        yield "delivered, but gone from the queue without a row in the archive", self.unarchived if archive_all else ()
        yield "archived more than once", self.archived_twice
        yield "archived with another result than the producer expects", self.unexpected_result
        yield "delivered before they were due", self.early
        yield "delivered out of order within their ordering key", self.order_breaks
        yield "delivered more than once though they were in flight at no fault", self.unexplained


def _sentence(text: str, ids: tuple[str, ...]) -> str:
    return f"{len(ids)} message{'s' if len(ids) > 1 else ''}, such as {ids[0]}: {text}."
