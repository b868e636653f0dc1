"""The data that passes through the relay: claims, the broker's results, and the outcomes to be written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from relay.memory import KEPT, of_text

LONGEST_JOB = 255
"""Most bytes of the name of a replay's job, by the ledger's limit."""
SHOWN = 20
"""At most so many refused messages of a replay are named; all are counted."""
ERASED = '{"erased": true}'
"""Options of an archived message whose contents were erased, as PostgreSQL prints them: no INSERT accepts such options."""
BUNDLED_IN = r"sent within ([0-9a-f-]{36})"
"""The error text of a part, a regular expression: the id is that of the bundle."""


class Position(NamedTuple):
    """A message's place in claim order: its transaction, then its number."""

    xid: int
    seq: int


START = Position(0, 0)
"""The position before every message."""


class Range(NamedTuple):
    """Messages after a position and below a transaction."""

    after: Position
    below: int


class TruncatedPayload(bytes):
    """The beginning of a payload that exceeded the limit when it was claimed; it is never sent, whatever the limit is now."""


class Claim(NamedTuple):
    """One claimed message, as the claim statement returns it."""

    xid: int
    seq: int
    id: str
    """Canonical text of the uuid; travels as `message_id` and as the header `x-relay-id`."""
    exchange: str
    routing_key: str
    payload: bytes
    """`body`, or else the bytes of `content::text`; never converted by a JSON parser."""
    binary: bool
    """Whether the payload is the column `body`."""
    options: bytes | None
    """JSON text in UTF-8, the most compact form; None for an empty object, the common case."""
    ordering_key: str | None
    replay_of: str | None
    attempts: int
    """Claims so far, including this one."""
    expires_in: float | None
    """Seconds from the claim until `expires_at`, by the database's clock."""
    lane: int | None = None
    """The lane of its ordering key, as the database computes it in its own encoding."""

    @property
    def position(self) -> Position:
        """The message's place in claim order."""
        return Position(self.xid, self.seq)


class Amount(NamedTuple):
    """Messages, and the bytes that they take in memory."""

    messages: int
    size: int


def memory_of(claims: Collection[Claim]) -> int:
    """Bytes that claims take in memory; most of it is computed by passes in C."""
    plain = KEPT * len(claims) + sum([len(claim.payload) for claim in claims])
    options = sum([len(claim.options) for claim in claims if claim.options])
    names = [text for claim in claims for text in (claim.exchange, claim.routing_key, claim.ordering_key) if text]
    joined = "".join(names)
    return plain + options + (len(joined) if joined.isascii() else sum(map(of_text, names)))


def by_exchange(claims: Collection[Claim]) -> dict[str, Amount]:
    """Messages and bytes by exchange."""
    parts: dict[str, list[Claim]] = {}
    for claim in claims:
        parts.setdefault(claim.exchange, []).append(claim)
    return {exchange: Amount(len(part), memory_of(part)) for exchange, part in parts.items()}


@dataclass(slots=True, eq=False)
class Batch:
    """Messages claimed by one statement under one lock token."""

    token: str
    claims: list[Claim]
    claimed_at: float
    """The database's time of the claim, seconds since the epoch."""
    claimed_tick: float
    """The relay's monotonic clock when the claim was sent: the zero of every later interval."""
    deadline: float
    """Monotonic time after which nothing of this batch may be written to the broker; moved by a renewed lock. See `behind`."""
    source: str = ""
    """The kind of claim that found the messages."""
    exchanges: dict[str, Amount] = field(init=False)
    """Messages and bytes by exchange."""
    size: int = field(init=False)
    """Bytes that all of it takes in memory."""
    behind: dict[tuple[int, int], float] = field(default_factory=dict)
    """Earlier deadlines, by position, of the claims whose locks were not renewed with the others."""

    def __post_init__(self) -> None:
        self.exchanges = by_exchange(self.claims)
        self.size = sum(amount.size for amount in self.exchanges.values())

    def is_overdue(self, claim: Claim, now: float) -> bool:
        """Whether a claim may not be written to the broker any more."""
        return now >= (self.behind.get((claim.xid, claim.seq), self.deadline) if self.behind else self.deadline)

    def renewed(self, positions: Collection[tuple[int, int]], deadline: float, *, left: Collection[tuple[int, int]]) -> None:
        """Note new deadlines.

        Args:
            positions: the messages whose renewal was requested: all in flight, or only those that were behind.
            deadline: the new deadline of the messages whose locks were renewed.
            left: the messages whose locks were not renewed.

        """
        caught_up = self.behind.keys() >= set(positions)
        self.behind |= {position: self.behind.get(position, self.deadline) for position in left}
        for position in positions:
            if position not in left:
                self.behind.pop(position, None)
        if not caught_up:
            self.deadline = deadline


class Verdict(Enum):
    """What became of one publish."""

    CONFIRMED = "confirmed"
    """`Basic.Ack` for its tag (AMQP 0-9-1 extension `confirm`); nothing else is success."""
    INVALID = "invalid"
    """Can never be sent as it is; nothing was written."""
    EXPIRED = "expired"
    """`expires_at` passed before it was written."""
    RETURNED = "returned"
    """Unroutable: `Basic.Return` of a mandatory message."""
    REFUSED = "refused"
    """Nacked, or the broker refused it alone: exchange missing, no permission."""
    UNKNOWN = "unknown"
    """Written, but the connection was lost before the confirm."""
    OVERDUE = "overdue"
    """A worker's handler did not end in its time; the message stays with its lock, which is renewed no more."""
    UNWRITTEN = "unwritten"
    """Nothing of it reached the broker."""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """One verdict with a stable code and a sentence for people; both empty for a confirm."""

    verdict: Verdict
    code: str = ""
    detail: str = ""
    blame: bool = False
    """For UNKNOWN: the broker closed the connection over a protocol error, so the message counts an attempt."""
    alone: bool = False
    """For UNKNOWN with `blame`: the broker had looked at everything else, so this message caused the error."""
    of_exchange: bool = False
    """For REFUSED: because of its exchange, so every message to that exchange is refused."""


CONFIRMED = PublishResult(Verdict.CONFIRMED)


class Portion(NamedTuple):
    """Results of a part of a batch; the lists run in parallel, times are monotonic seconds (0.0: never)."""

    claims: list[Claim]
    results: list[PublishResult]
    published: list[float]
    confirmed: list[float]


class Result(StrEnum):
    """The result of a message, in the archive's words."""

    SUCCESS = "success"
    REJECTED = "rejected"
    FAILED = "failed"
    LOCK_EXPIRED = "lock_expired"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Archive:
    """Outcome: the message leaves the queue with this result."""

    result: Result
    code: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """Outcome: an attempt failed; due again after `delay` seconds."""

    delay: float
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Outcome: not the message's fault; claimable again at once, and the claim does not count."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Outcome: written, not confirmed, and the relay is leaving; the lock stays until it expires."""


Outcome = Archive | Retry | GiveBack | Keep
SUCCESS = Archive(Result.SUCCESS)
