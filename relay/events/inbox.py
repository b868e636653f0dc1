"""Events of an inbox: deliveries from the broker, their outcomes, and handler failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class Receiving(Event):
    """The receiver starts to consume these queues."""

    schema: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueOpened(Event):
    """A queue is being consumed."""

    queue: str


@dataclass(frozen=True, slots=True)
class QueueNarrowed(Event):
    """Unacknowledged bytes exceeded the limit: the surplus was requeued, and the prefetch count lowered to `prefetch` for now."""

    queue: str
    size: int
    prefetch: int


@dataclass(frozen=True, slots=True)
class QueueRefused(Event):
    """A queue is missing, may not be read, is a stream, or was deleted; the receiver keeps retrying."""

    level: ClassVar[str] = "warning"
    queue: str
    error: str
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class BatchReceived(Event):
    """Deliveries are committed: new ones, ones known already, and ones archived as rejected."""

    level: ClassVar[str] = "none"
    new: int
    known: int
    rejected: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryRejected(Event):
    """A delivery can never be stored as a message, so it was archived as rejected."""

    level: ClassVar[str] = "warning"
    queue: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed(Event):
    """Deliveries could not be written; the write is retried, and they are acknowledged only after it succeeds."""

    level: ClassVar[str] = "warning"
    messages: int
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class InboxFull(Event):
    """The inbox has reached its limit; consuming stops until a fifth of its messages is handled."""

    level: ClassVar[str] = "warning"
    waiting: int
    limit: int


@dataclass(frozen=True, slots=True)
class InboxOpen(Event):
    """The inbox has room again; consuming resumes."""

    waiting: int


@dataclass(frozen=True, slots=True)
class HandlerFailed(Event):
    """A worker's handler raised an exception, and the attempt failed; `id` is the first message of a batch."""

    level: ClassVar[str] = "warning"
    id: str
    kind: str
    """The exception's type."""
    error: str
    """The error as stored: the text of a `Retry`; else type and line, because the text may quote the message."""
    where: str
    """Module and line of the innermost frame in the handler's package."""
    messages: int


@dataclass(frozen=True, slots=True)
class HandlerRaised(Event):
    """The text of a handler's exception. It may quote the message, so it is logged only at `RELAY_LOG_LEVEL=debug`."""

    level: ClassVar[str] = "debug"
    id: str
    error: str
    """Type and text."""


@dataclass(frozen=True, slots=True)
class HandlerOverdue(Event):
    """A worker's handler timed out and was cancelled; its message stays locked until the lock expires."""

    level: ClassVar[str] = "warning"
    id: str
    seconds: float
