"""Events of schedules and of messages with a key; see `relay.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class ScheduleFails(Event):
    """A schedule's message was refused, or its last message is dead; logged again for a new reason."""

    level: ClassVar[str] = "warning"
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class ScheduleRecovered(Event):
    """A failing schedule recovered: its next message was sent, or the schedule was changed, paused or acknowledged."""

    name: str


@dataclass(frozen=True, slots=True)
class KeyFails(Event):
    """Due messages of a key could not be moved to the queue, because an application's trigger refused; logged again for a new reason."""

    level: ClassVar[str] = "warning"
    key: str
    error: str


@dataclass(frozen=True, slots=True)
class KeyRecovered(Event):
    """A failing key recovered: its messages were sent, replaced or cancelled."""

    key: str


@dataclass(frozen=True, slots=True)
class KeysFolded(Event):
    """Due messages with a key were moved to the queue; some of them were replaced by newer ones, or bundled."""

    level: ClassVar[str] = "none"
    messages: int
    superseded: int
    bundled: int
