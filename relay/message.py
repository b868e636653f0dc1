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
"""Most refused messages that a replay names; it counts all of them."""
ERASED = '{"erased": true}'
"""Options of an archived message whose contents were erased, as PostgreSQL prints them: no INSERT accepts such options."""
BUNDLED_IN = r"sent within ([0-9a-f-]{36})"
"""A regular expression for the error text of a message that was sent as part of a bundle. The group is the bundle's id."""


class Position(NamedTuple):
    """A message's place in claim order: its transaction, then its number."""

    xid: int
    seq: int


START = Position(0, 0)
"""The position before every message."""


class Range(NamedTuple):
    """The messages after the position `after` whose transaction is below `below`."""

    after: Position
    below: int


class TruncatedPayload(bytes):
    """The beginning of a payload that exceeded the limit when it was claimed; it is never sent, whatever the limit is now."""


class Claim(NamedTuple):
    """One claimed message, as the claim statement returns it."""

    xid: int
    seq: int
    id: str
    """Canonical text of the uuid; sent as the property `message_id` and as the header `x-relay-id`."""
    exchange: str
    routing_key: str
    payload: bytes
    """The column `body`; without a body, the bytes of `content::text`, which no JSON parser has converted."""
    binary: bool
    """Whether the payload is the column `body`."""
    options: bytes | None
    """JSON text in UTF-8, the most compact form; None for an empty object, which is the common case."""
    ordering_key: str | None
    replay_of: str | None
    attempts: int
    """Claims so far, including this one."""
    expires_in: float | None
    """Seconds from the claim until `expires_at`, by the database's clock."""
    lane: int | None = None
    """The lane of the message's ordering key, which the database computes in its own encoding."""

    @property
    def position(self) -> Position:
        """The message's place in claim order."""
        return Position(self.xid, self.seq)


class Amount(NamedTuple):
    """Messages, and the bytes that they take in memory."""

    messages: int
    size: int


def memory_of(claims: Collection[Claim]) -> int:
    """Bytes that claims take in memory; passes in C compute most of the sum."""
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
    """Monotonic time after which no message of this batch may be written to the broker. A renewed lock moves it. See `behind`."""
    source: str = ""
    """The kind of claim that found the messages."""
    exchanges: dict[str, Amount] = field(init=False)
    """Messages and bytes by exchange."""
    size: int = field(init=False)
    """Bytes that the batch takes in memory."""
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
            positions: the messages whose renewal was requested: all messages in flight, or only messages in `behind`.
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
    """The broker sent `Basic.Ack` for the message's tag (AMQP 0-9-1 extension `confirm`); nothing else is success."""
    INVALID = "invalid"
    """The message can never be sent as it is; nothing of it was written."""
    EXPIRED = "expired"
    """`expires_at` passed before the message was written."""
    RETURNED = "returned"
    """The broker sent `Basic.Return` for the mandatory message, which is unroutable."""
    REFUSED = "refused"
    """The broker nacked the message or closed its channel, for example because the exchange or a permission is missing."""
    UNKNOWN = "unknown"
    """The message was written, but the connection was lost before the confirm."""
    OVERDUE = "overdue"
    """A worker's handler did not end in time. The message stays locked, but its lock is no longer renewed."""
    UNWRITTEN = "unwritten"
    """Nothing of the message reached the broker."""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """One verdict, with a stable code and a sentence for operators. For a confirm, code and sentence are empty."""

    verdict: Verdict
    code: str = ""
    detail: str = ""
    blame: bool = False
    """For UNKNOWN: the broker closed the connection over a protocol error, so the claim counts as an attempt of the message."""
    alone: bool = False
    """For UNKNOWN with `blame`: the broker had processed everything else, so this message caused the error."""
    of_exchange: bool = False
    """For REFUSED: the exchange is the reason, so the broker refuses every message to this exchange."""


CONFIRMED = PublishResult(Verdict.CONFIRMED)


class Portion(NamedTuple):
    """Results of a part of a batch. Equal indexes in these lists mean the same message; times are monotonic seconds (0.0: never)."""

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
    """Outcome: an attempt failed; the message is due again after `delay` seconds."""

    delay: float
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Outcome: the message did not cause the failure. It is claimable again at once, and the claim does not count as an attempt."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Outcome: the lock stays until it expires. The relay shut down before the confirm, or a worker's handler did not end in time."""


Outcome = Archive | Retry | GiveBack | Keep
SUCCESS = Archive(Result.SUCCESS)
