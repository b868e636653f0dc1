"""Typed events of the core and its adapters; logs, metrics and tests are sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; subclasses carry plain values and never payloads or secrets."""

    level: ClassVar[str] = "info"
    """Level of the log line; "none" is for metrics and tests only."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The relay is registered and starts to claim."""

    relay_id: int
    name: str
    schema: str


@dataclass(frozen=True, slots=True)
class HttpUp(Event):
    """The HTTP server for metrics and probes is listening."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """The relay is shutting down, after a signal or a call: it claims and publishes nothing more."""

    reason: str
    action: str
    """drain: wait for confirms of published messages; cut: do not wait."""
    in_flight: int


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """The relay has stopped; `kept` published messages keep their locks because their confirms did not come in time."""

    kept: int


@dataclass(frozen=True, slots=True)
class Abandoned(Event):
    """The relay exits while a server hangs in the middle of a reply; its messages in flight stay locked until their locks expire."""

    level: ClassVar[str] = "error"
    in_flight: int


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
    """Seconds from the first publish to the last confirm of the portion."""


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
    """Another relay claimed these messages before they were settled: they may have been sent twice."""

    level: ClassVar[str] = "warning"
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageRefused(Event):
    """A trigger refuses to claim, release or archive a message; the relay retries it and logs this once a minute."""

    level: ClassVar[str] = "warning"
    id: str
    exchange: str
    error: str


@dataclass(frozen=True, slots=True)
class SettleFailed(Event):
    """A settle failed; the relay retries the settle and does not publish again."""

    level: ClassVar[str] = "warning"
    messages: int
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DatabaseDown(Event):
    """The database did not answer, or refused; the relay waits and retries."""

    level: ClassVar[str] = "warning"
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DatabaseUp(Event):
    """The database answers again."""


@dataclass(frozen=True, slots=True)
class ConnectionInsecure(Event):
    """An open connection could be read or taken over on the network; each risk is logged once."""

    level: ClassVar[str] = "warning"
    risk: str


@dataclass(frozen=True, slots=True)
class SecretChanged(Event):
    """The file of this setting has changed: new connections use the new value."""

    setting: str


@dataclass(frozen=True, slots=True)
class SecretKept(Event):
    """The file of this setting is missing or invalid: new connections use the previous value. Logged once until the file is valid again."""

    level: ClassVar[str] = "warning"
    setting: str
    error: str


@dataclass(frozen=True, slots=True)
class ExchangeLimited(Event):
    """An exchange is limited to `per_second` messages a second, over all relays."""

    exchange: str
    per_second: float


@dataclass(frozen=True, slots=True)
class ExchangeUnlimited(Event):
    """The limit of an exchange is lifted."""

    exchange: str


@dataclass(frozen=True, slots=True)
class ListenUp(Event):
    """LISTEN works: the relay received its own test notification."""


@dataclass(frozen=True, slots=True)
class ListenDown(Event):
    """LISTEN does not work; the relay only polls."""

    level: ClassVar[str] = "warning"
    error: str


@dataclass(frozen=True, slots=True)
class LocksSwept(Event):
    """Messages with expired locks were released to the queue or, past the limit, archived."""

    level: ClassVar[str] = "warning"
    released: int
    archived: int


@dataclass(frozen=True, slots=True)
class MessagesRenumbered(Event):
    """Messages of another cluster (a restored dump) got transaction ids of this one; `more`: some are left."""

    messages: int
    more: bool


@dataclass(frozen=True, slots=True)
class ForeignIdsSought(Event):
    """The relay is searching the queue for messages of another cluster; it has searched `messages` so far."""

    messages: int


@dataclass(frozen=True, slots=True)
class StrandedFound(Event):
    """The scrub claimed messages that earlier claims had skipped, such as messages locked by another session."""

    level: ClassVar[str] = "warning"
    messages: int


@dataclass(frozen=True, slots=True)
class PartitionsEnsured(Event):
    """Archive partitions were created or dropped."""

    created: int
    dropped: int


@dataclass(frozen=True, slots=True)
class MaintenanceFailed(Event):
    """A maintenance task failed and will be retried."""

    level: ClassVar[str] = "warning"
    step: str
    error: str


@dataclass(frozen=True, slots=True)
class SettingOverruled(Event):
    """A setting of this relay differs from the database's policy; the policy wins."""

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
    """Report connections that are not secure, each risk once."""
    reported: set[str] = set()

    def warn(risk: str) -> None:
        if risk not in reported:
            reported.add(risk)
            emit(ConnectionInsecure(risk))

    return warn


NOBODY = fan_out()
"""The sink that drops every event."""
