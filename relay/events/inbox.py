"""Events of an inbox: what came from the broker, what became of it, and how handlers failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class Receiving(Event):
    """The receiver begins; the queues that it takes messages from."""

    schema: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueOpened(Event):
    """A queue's messages come in."""

    queue: str


@dataclass(frozen=True, slots=True)
class QueueNarrowed(Event):
    """More bytes of a queue had come than may be here: it has them back, and sends so many messages at a time for now."""

    queue: str
    size: int
    prefetch: int


@dataclass(frozen=True, slots=True)
class QueueRefused(Event):
    """A queue is missing, may not be read, is a stream, or was deleted: it is asked for again and again."""

    level: ClassVar[str] = "warning"
    queue: str
    error: str
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class BatchReceived(Event):
    """Deliveries are committed: new ones, those that were there already, and those that went to the dead side."""

    level: ClassVar[str] = "none"
    new: int
    known: int
    rejected: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryRejected(Event):
    """A delivery can never be a message: it went to the dead side."""

    level: ClassVar[str] = "warning"
    queue: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed(Event):
    """Deliveries could not be written; they are tried again, and acknowledged only after that."""

    level: ClassVar[str] = "warning"
    messages: int
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class InboxFull(Event):
    """More messages wait in the inbox than is allowed: nothing is taken from the queues until a fifth of them is gone."""

    level: ClassVar[str] = "warning"
    waiting: int
    limit: int


@dataclass(frozen=True, slots=True)
class InboxOpen(Event):
    """There is room again: messages come in."""

    waiting: int


@dataclass(frozen=True, slots=True)
class HandlerFailed(Event):
    """A worker's handler raised an exception, which spoiled an attempt; of messages that were handed over together the first is named."""

    level: ClassVar[str] = "warning"
    id: str
    kind: str
    """The exception's type."""
    error: str
    """As the row keeps it: the sentence of a `Retry`; else type and place, since the text may quote the message."""
    where: str
    """Module and line, the innermost in the handler's own package."""
    messages: int


@dataclass(frozen=True, slots=True)
class HandlerRaised(Event):
    """What a handler's exception said: it may quote the message, so only a worker at `RELAY_LOG_LEVEL=debug` shows it."""

    level: ClassVar[str] = "debug"
    id: str
    error: str
    """Type and text."""


@dataclass(frozen=True, slots=True)
class HandlerOverdue(Event):
    """A worker's handler did not end within its time: it is cancelled, and its message left to its lock."""

    level: ClassVar[str] = "warning"
    id: str
    seconds: float
