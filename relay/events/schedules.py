"""What there is to tell of schedules and of messages with a key, as `relay.events` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class ScheduleFails(Event):
    """A schedule's message was refused, or its last one is dead; told again where the reason is another."""

    level: ClassVar[str] = "warning"
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class ScheduleGoesOn(Event):
    """A schedule that failed does no more: its next message went, or it was changed, paused or acknowledged."""

    name: str


@dataclass(frozen=True, slots=True)
class KeyFails(Event):
    """What is due under a key could not be sent to the queue, as a trigger of the application's had it; told again for another reason."""

    level: ClassVar[str] = "warning"
    key: str
    error: str


@dataclass(frozen=True, slots=True)
class KeyGoesOn(Event):
    """A key that failed does no more: its messages were sent, replaced or cancelled."""

    key: str


@dataclass(frozen=True, slots=True)
class KeysFolded(Event):
    """Messages with a key were taken from where they wait; so many of them were replaced by others, or sent within one."""

    level: ClassVar[str] = "none"
    messages: int
    superseded: int
    bundled: int
