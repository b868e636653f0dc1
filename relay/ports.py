"""Interfaces that the core requires of its adapters. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.message import START, Batch, Claim, Outcome, Portion, Position, Range


@dataclass(frozen=True, slots=True)
class Fresh:
    """Claim messages without a key that were never claimed."""

    ranges: Sequence[Range]
    walk: int
    """Most messages that the claim may scan in each range."""
    excluded: Sequence[str] = ()
    """Exchanges whose messages are not claimed."""
    only: Sequence[str] | None = None
    """Exchanges whose messages are claimed; None for all."""
    source = "fresh"


@dataclass(frozen=True, slots=True)
class At:
    """Claim messages that a scan has found, if they are still claimable."""

    positions: Sequence[Position]
    source: str
    """`waiting`, `suspect` or `ordered`."""
    lanes: Mapping[int, int] = field(default_factory=dict)
    """The lanes of the messages with an ordering key, each with the epoch in which this relay owns it."""


@dataclass(frozen=True, slots=True)
class ById:
    """Claim the messages that an operator names."""

    ids: Sequence[str]
    source = "by_id"


Wanted = Fresh | At | ById
"""The messages that a claim considers."""
SUSPECT = "suspect"
"""The `source` of claims of messages whose locks have expired before."""


class SettleRow(NamedTuple):
    """One claim with its outcome, ready to be written. Times are microseconds since the claim; None means never."""

    claim: Claim
    outcome: Outcome
    published: int | None
    confirmed: int | None


class RowLeft(NamedTuple):
    """A row that a statement did not change."""

    id: str
    busy: bool
    """True: another session has locked the row, but the claim still belongs to this relay. False: the claim is lost."""


class SettleResult(NamedTuple):
    """What a settle actually changed; equal indexes in `portion` and `outcomes` mean the same message."""

    portion: Portion
    outcomes: Sequence[Outcome]
    lost: list[str]
    """Ids of messages that another relay has reclaimed: they count and are logged as lost locks, never as delivered."""


class Claimed(NamedTuple):
    """The messages that a claim statement locked, and the snapshot in which it ran."""

    batch: Batch | None
    snapshot: str
    """Text of `pg_current_snapshot()` in the same statement."""
    full: bool
    """Whether a limit on messages or bytes left out due messages."""
    last: Position | None = None
    """The highest position claimed or refused."""
    bounds: Sequence[Position | None] = ()
    """For a claim of fresh messages: for each range, the first position not scanned; None if the claim reached the range's end."""
    refused: Sequence[Position] = ()
    """Due messages whose UPDATE an application's trigger refuses: the scrub finds them again, which is soon enough."""


class Listed(NamedTuple):
    """Keys of fresh messages, in claim order."""

    keys: Mapping[str, tuple[int, Position]]
    """For each key its lane and the lowest fresh message that was scanned."""
    snapshot: str
    last: Position | None
    """The last position listed if the listing was cut short; None if it reached the end."""


class ScanFinding(NamedTuple):
    """A message that a scan has found."""

    kind: str
    """`waiting`: the message's wait is over. `stranded`: the message is fresh, and its stream has passed it. `suspect`: its lock expired
    before. `key`: the lowest message of its key in this page, or the key's head. `blocked`: a head that is locked, that waits, or whose
    exchange may not be claimed. `expired`: its lock has expired now."""
    position: Position
    exchange: str
    key: str | None
    lane: int | None
    trusted: bool
    """For a suspect: whether it may be claimed together with others."""


class Sought(NamedTuple):
    """What a scan must find."""

    held: list[str]
    """For these exchanges the scan finds only expired locks."""
    crowded: list[str]
    """For these exchanges the scan finds keys and suspects but no other messages, because there is no room for more."""
    lanes: list[int]
    """Lanes whose keys the scan finds."""


class DuePlace(NamedTuple):
    """A place in the order of waiting messages: by the time for which they wait, then by position."""

    time: str
    position: Position = START


class Page(NamedTuple):
    """One page of a scan."""

    findings: Sequence[ScanFinding]
    reached: Position | None
    """The position where a scan in claim order continues; None at the end."""
    first: Position | None
    """The first message that was scanned."""
    due: DuePlace
    """The place where a scan of waits continues."""
    seconds: float = 0.0
    """Seconds that this page took, without the wait for earlier statements."""


class Places(NamedTuple):
    """How far a relay's claims have come, as the relay reports it."""

    low: Position
    """No message in flight is below this position."""
    head: Position
    """The lowest head of a stream: no fresh message is below this head, except from transactions that commit late."""
    top: Position
    """The head of the main stream."""


NOWHERE = Places(START, START, START)


class QueueLook(NamedTuple):
    """Which sources of the intake may have due messages."""

    fresh: bool
    ordered: bool
    waiting: bool


class ClaimStore(Protocol):
    """Claims messages in the database."""

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Lock up to `limit` messages and about `limit_bytes` stored bytes (at least one message).

        If payloads turn out to be longer than their stored form and do not fit, their messages are released again.

        Raises:
            StoreError: the outcome is unknown; messages that were claimed after all become free when their locks expire.
        """


class Publisher(Protocol):
    """Sends claimed messages to the broker and returns the result of each."""

    @property
    def ready(self) -> bool:
        """Whether the publisher is connected and not blocked, so that a claim makes sense."""

    def publish(self, batch: Batch) -> AsyncIterator[Portion]:
        """Publish a batch; yield portions until every claim has had exactly one result.

        Never raises for a message. A portion is yielded when every message has its result. After a short
        wait, a portion has the results so far, so that a silent queue delays no other queue.
        """

    async def wait_ready(self) -> None:
        """Return once `ready` is true."""

    def stop_writing(self) -> None:
        """Write no further message: messages that the broker cannot have are UNWRITTEN, the others wait for their confirms."""

    def cut(self) -> None:
        """Give up on confirms: written messages are UNKNOWN, the rest are UNWRITTEN."""


class LivePublisher(Publisher, Protocol):
    """A publisher that must be started and closed."""

    async def start(self) -> None:
        """Begin to connect, and return at once."""

    async def aclose(self) -> None:
        """Give up on messages in flight and end; may be called at any time, and repeatedly."""

    def silent(self) -> dict[str, float]:
        """For each exchange with an unconfirmed write: the seconds since the oldest such write."""


class Settler(Protocol):
    """Writes outcomes until they are written."""

    def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """Archive or release each claim of the portion by its outcome, and retry until all are written.

        Yields the written rows: all at once, unless the archive refuses single rows or other sessions have
        locked them. Such rows are tried again for ever, and yielded once they are written.
        """

    def leave(self) -> None:
        """Try once more the rows that the archive refuses, then leave them locked; everything else is still written."""


class Intake(Protocol):
    """Where claimed batches come from: streams, waiting messages, lanes."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch of at most `room` messages and about `room_bytes` bytes, or None when nothing is due.

        Raises:
            StoreError: the database did not answer; retry with backoff.
        """

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Learn the outcomes of claims, for example that an ordering key is free again."""

    def hint(self) -> None:
        """Messages may have been inserted: poll at once."""

    async def reject_unprintable(self) -> None:
        """Archive the messages that no claim can return.

        Raises:
            StoreError: the database did not answer.
        """

    def until_next_look(self) -> float:
        """Seconds until a poll is due."""

    def reset(self) -> None:
        """The database connection is new: begin again."""


class SettleStore(Protocol):
    """Writes outcomes, fenced by the lock token. If another session has locked a row, the other rows are written nevertheless."""

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Archive rows with their results; return those that were not written.

        With `again`, an earlier call may have been committed although its answer was lost, so missing rows are looked up in the archive.

        Raises:
            StoreError: the outcome is unknown; the call may be repeated.
        """

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Return rows to the queue; return those that were not written.

        With `again`, an earlier call may have been committed although its answer was lost, so missing rows are looked up.

        Raises:
            StoreError: the outcome is unknown; the call may be repeated.
        """


class Wakeup(Protocol):
    """Hints that the queue has something to claim; the poll is the guarantee."""

    async def idle(self) -> bool:
        """Note that nothing is due, so writers must notify. Return True if the queue must be polled once more before sleeping."""

    def busy(self, messages: int) -> None:
        """A claim found `messages`: writers need not notify while this continues."""
