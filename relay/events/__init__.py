"""Typed events that the core and its adapters emit; logs, metrics and tests are sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; subclasses carry plain values and never payloads or secrets."""

    level: ClassVar[str] = "info"
    """Level at which the log sink writes it; "none" is for metrics and tests only."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The relay is registered and begins to claim."""

    relay_id: int
    name: str
    schema: str


@dataclass(frozen=True, slots=True)
class HttpUp(Event):
    """Metrics and probes are served here."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """A signal or a caller asked for the end; nothing is claimed and nothing new is written any more."""

    reason: str
    action: str
    """drain: what is written waits for its confirm; cut: no longer."""
    in_flight: int


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """The relay has left; `kept` written messages keep their lock because no confirm came in time."""

    kept: int


@dataclass(frozen=True, slots=True)
class Abandoned(Event):
    """The relay ends although a server hangs in the middle of an answer; what is in hand keeps its locks until they expire."""

    level: ClassVar[str] = "error"
    in_hand: int


@dataclass(frozen=True, slots=True)
class BatchClaimed(Event):
    """A claim returned messages."""

    level: ClassVar[str] = "none"
    source: str
    messages: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchSettled(Event):
    """A settle was written. `outcomes` counts by result word, or "retry", "released", "kept" and "lost"."""

    level: ClassVar[str] = "none"
    messages: int
    seconds: float
    outcomes: Mapping[str, int] = field(default_factory=dict)
    publish_seconds: float = 0.0
    """From write to last confirm of the portion."""


@dataclass(frozen=True, slots=True)
class MessageDead(Event):
    """A message was archived with a result other than success."""

    level: ClassVar[str] = "warning"
    id: str
    result: str
    code: str
    detail: str
    exchange: str


@dataclass(frozen=True, slots=True)
class LockLost(Event):
    """Another relay had taken these messages over before they were settled: they may have gone out twice."""

    level: ClassVar[str] = "warning"
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageRefused(Event):
    """A trigger refuses to claim, release or archive a message; the relay tries it again and reports it once a minute."""

    level: ClassVar[str] = "warning"
    id: str
    exchange: str
    error: str


@dataclass(frozen=True, slots=True)
class SettleFailed(Event):
    """A settle did not get through and is tried again as a settle."""

    level: ClassVar[str] = "warning"
    messages: int
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DatabaseDown(Event):
    """The database did not answer or refused; the relay waits."""

    level: ClassVar[str] = "warning"
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DatabaseUp(Event):
    """The database answers again."""


@dataclass(frozen=True, slots=True)
class ConnectionInsecure(Event):
    """A connection stands that others could read or take over on its way; each is told once."""

    level: ClassVar[str] = "warning"
    risk: str


@dataclass(frozen=True, slots=True)
class SecretChanged(Event):
    """The file of this setting holds something else: from now on connections are made with that."""

    setting: str


@dataclass(frozen=True, slots=True)
class SecretKept(Event):
    """The file of this setting is gone or not usable: connections are made with what it held before. Told once until it is right again."""

    level: ClassVar[str] = "warning"
    setting: str
    error: str


@dataclass(frozen=True, slots=True)
class ExchangeLimited(Event):
    """From now on at most so many messages a second of an exchange go out, over all relays."""

    exchange: str
    per_second: float


@dataclass(frozen=True, slots=True)
class ExchangeUnlimited(Event):
    """The limit of an exchange is lifted."""

    exchange: str


@dataclass(frozen=True, slots=True)
class ListenUp(Event):
    """LISTEN proved itself alive by hearing its own notification."""


@dataclass(frozen=True, slots=True)
class ListenDown(Event):
    """LISTEN is not heard; the poll goes on alone."""

    level: ClassVar[str] = "warning"
    error: str


@dataclass(frozen=True, slots=True)
class LocksSwept(Event):
    """Expired locks went back to the queue or, past the limit, to the archive."""

    level: ClassVar[str] = "warning"
    released: int
    archived: int


@dataclass(frozen=True, slots=True)
class MessagesRenumbered(Event):
    """Messages of another cluster, as from a restored dump, got transaction ids of this one; `more` are left."""

    messages: int
    more: bool


@dataclass(frozen=True, slots=True)
class ForeignIdsSought(Event):
    """The queue is searched for messages of another cluster; `messages` were looked at so far."""

    messages: int


@dataclass(frozen=True, slots=True)
class StrandedFound(Event):
    """The scrub claimed fresh messages that claims had passed over, such as those that another session had locked."""

    level: ClassVar[str] = "warning"
    messages: int


@dataclass(frozen=True, slots=True)
class PartitionsEnsured(Event):
    """Archive partitions were made or dropped."""

    created: int
    dropped: int


@dataclass(frozen=True, slots=True)
class MaintenanceFailed(Event):
    """A maintenance step failed and will be tried again."""

    level: ClassVar[str] = "warning"
    step: str
    error: str


@dataclass(frozen=True, slots=True)
class SettingOverruled(Event):
    """This relay's environment differs from the database's policy, which holds."""

    level: ClassVar[str] = "warning"
    name: str
    environment: str
    database: str


Sink = Callable[[Event], None]


def fan_out(*sinks: Sink) -> Sink:
    """One sink that hands each event to all of `sinks` in order."""

    def emit(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return emit


def warn_once(emit: Sink) -> Callable[[str], None]:
    """Tells of connections that are not safe, of each risk once."""
    told: set[str] = set()

    def warn(risk: str) -> None:
        if risk not in told:
            told.add(risk)
            emit(ConnectionInsecure(risk))

    return warn


NOBODY = fan_out()
"""Where nobody is to hear of it."""
