"""What the core asks of its adapters. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.message import START, Batch, Claim, Outcome, Portion, Position, Range


@dataclass(frozen=True, slots=True)
class Fresh:
    """Claim unordered messages that were never claimed."""

    ranges: Sequence[Range]
    walk: int
    """Messages that may be walked over in each range."""
    excluded: Sequence[str] = ()
    """Exchanges whose messages are left alone."""
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
    """Lanes of the ordered ones among them, with the epochs in which this relay owns them."""


@dataclass(frozen=True, slots=True)
class ById:
    """Claim the messages that an operator names."""

    ids: Sequence[str]
    source = "by_id"


Wanted = Fresh | At | ById
"""What a claim looks at."""
SUSPECT = "suspect"
"""The source of claims of messages whose lock has expired before."""


class SettleRow(NamedTuple):
    """One claim with its outcome, ready to be written; times are microseconds since the claim, None: never."""

    claim: Claim
    outcome: Outcome
    published: int | None
    confirmed: int | None


class RowLeft(NamedTuple):
    """A row that a statement left as it was."""

    id: str
    busy: bool
    """Another session holds the row, which is still ours; False: it is not ours any more."""


class SettleResult(NamedTuple):
    """What a settle really changed; the lists run in parallel."""

    portion: Portion
    outcomes: Sequence[Outcome]
    lost: list[str]
    """Ids whose lock had been taken over: counted and logged as lost locks, never called delivered."""


class Claimed(NamedTuple):
    """What a claim statement found and what it could see."""

    batch: Batch | None
    snapshot: str
    """Text of `pg_current_snapshot()` of that same statement."""
    full: bool
    """A limit on messages or bytes left out something that was due."""
    last: Position | None = None
    """The highest position claimed or refused."""
    bounds: Sequence[Position | None] = ()
    """Of a claim of fresh messages: the first position of each range that was not looked at, None where it came to the end."""
    refused: Sequence[Position] = ()
    """Due, but a trigger of the application's refuses the UPDATE: the scrub finds them again, and that is soon enough."""


class Listed(NamedTuple):
    """Keys of fresh messages, in claim order."""

    keys: Mapping[str, tuple[int, Position]]
    """The lane of each, and its lowest fresh message that was walked."""
    snapshot: str
    last: Position | None
    """Where it was cut short."""


class ScanFinding(NamedTuple):
    """A message that a scan has seen."""

    kind: str
    """`waiting`: its wait is over; `stranded`: fresh, its stream has passed it; `suspect`: its lock has expired before; `key`: the lowest
    of its ordering key in this page, or its head; `blocked`: a head that is locked, waits or is held; `expired`: its lock is over."""
    position: Position
    exchange: str
    key: str | None
    lane: int | None
    trusted: bool
    """Of a suspect: it may be claimed together with others."""


class Sought(NamedTuple):
    """What a scan is to find."""

    held: list[str]
    """Exchanges of which it finds nothing but locks that are over."""
    crowded: list[str]
    """Exchanges of which it finds keys and suspects, but no other message: there is no room for more."""
    lanes: list[int]
    """Lanes whose keys it finds."""


class Page(NamedTuple):
    """One page of a scan."""

    findings: Sequence[ScanFinding]
    reached: Position | None
    """Where a scan in claim order continues; None at the end."""
    first: Position | None
    """The first message that was walked."""
    time: str
    """After which time a scan of waits continues."""
    seconds: float = 0.0
    """How long the database took, without the statements before it."""


class Places(NamedTuple):
    """Where a relay is, as it reports it."""

    low: Position
    """No message in flight is below."""
    head: Position
    """The lowest head of a stream: nothing fresh is below, except messages of transactions that commit late."""
    top: Position
    """The head of the main stream."""


NOWHERE = Places(START, START, START)


class QueueLook(NamedTuple):
    """Where something may be due."""

    fresh: bool
    ordered: bool
    waiting: bool


class ClaimStore(Protocol):
    """Claims messages in the database."""

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Lock up to `limit` messages and about `limit_bytes` stored bytes (at least one message).

        Messages whose payloads turn out to be longer, and leave no room for them, are released again.

        Raises:
            StoreError: nothing may be assumed; what was claimed all the same comes back when its lock expires.
        """


class Publisher(Protocol):
    """Sends claimed messages to the broker and says what became of each."""

    @property
    def ready(self) -> bool:
        """Connected and not blocked: claiming makes sense."""

    def publish(self, batch: Batch) -> AsyncIterator[Portion]:
        """Publish a batch; yield portions until every claim has had exactly one result.

        Never raises for a message. A portion is yielded when everything is decided. After a short
        patience it holds what is decided so far, so that a silent queue delays no other.
        """

    async def wait_ready(self) -> None:
        """Return once `ready` is true."""

    def stop_writing(self) -> None:
        """Write nothing more, for good: what the broker cannot have is UNWRITTEN, what it may have waits for its confirm."""

    def cut(self) -> None:
        """Give up on confirms: whatever was written is UNKNOWN from now on, the rest UNWRITTEN."""


class LivePublisher(Publisher, Protocol):
    """A publisher with a life of its own."""

    async def start(self) -> None:
        """Begin to connect; returns at once."""

    async def aclose(self) -> None:
        """Cut what is in flight and end; legal at any time, and again."""

    def silent(self) -> dict[str, float]:
        """Seconds since the oldest write without a confirm, of each exchange that has one."""


class Settler(Protocol):
    """Writes outcomes until they are written."""

    def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """Archive or release each claim of the portion by its outcome, however often it takes.

        Yields what is written: all of it at once, unless the archive refuses single rows or other sessions
        hold them. Those are tried again for ever and yielded when they pass.
        """

    def leave(self) -> None:
        """Try rows that the archive refuses once more, and leave them to their locks; everything else is still written."""


class Intake(Protocol):
    """Where claimed batches come from: streams, waiting messages, lanes."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch of at most `room` messages and about `room_bytes` bytes, or None when nothing is due.

        Raises:
            StoreError: the database did not answer; retry with backoff.
        """

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of claims, e.g. that the key of an ordered message is free again."""

    def hint(self) -> None:
        """Messages may have been inserted: look at once."""

    async def reject_unprintable(self) -> None:
        """Archive the messages that no claim can hand out.

        Raises:
            StoreError: the database did not answer.
        """

    def until_next_look(self) -> float:
        """Seconds until a look is due."""

    def reset(self) -> None:
        """The database connection is new: begin again."""


class SettleStore(Protocol):
    """Writes outcomes, fenced by the lock token. A row that another session holds keeps no other from being written."""

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Archive rows with their results; return those that were not written.

        With `again` an earlier call may have got through unheard, so what is missing is looked up in the archive first.

        Raises:
            StoreError: nothing may be assumed; safe to call again.
        """

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Put rows back into the queue; return those that were not written.

        With `again` an earlier call may have got through unheard, so what is missing is looked up first.

        Raises:
            StoreError: nothing may be assumed; safe to call again.
        """


class Wakeup(Protocol):
    """Hints that the queue has something to claim; the poll is the guarantee."""

    async def idle(self) -> bool:
        """Nothing is due: have writers notify; True if the queue must be looked at once more before sleeping."""

    def busy(self, messages: int) -> None:
        """That many messages were found: writers need not notify while that continues."""
