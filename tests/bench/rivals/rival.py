"""What a relay must describe about itself to be measured alongside the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from relay.devservers.process import Say

FIRST = 100_001
"""Number of the first message: six digits, so that all payloads have one length."""
SIZE = 300
"""Bytes of a payload, as PostgreSQL writes its JSON."""
PAD = "x" * (SIZE - len('{"pad": "", "value": 123456}'))


class NotInstallableError(Exception):
    """A rival cannot be had here; the message is a sentence that says why."""


@dataclass(frozen=True)
class Statements:
    """How an application and an operator speak to the relay's tables."""

    insert: str
    """Messages `first` to `last` for an `exchange` and a `routing_key`; each payload has its number as `value`, and a `pad`."""
    waits: str
    """Whether any message still has to go out; cheap, for it is asked while the relay works."""
    waiting: str
    """Numbers of the messages that still have to go out."""
    dead: str
    """Numbers of the messages that were given up."""
    why: str
    """What the database says of the message `value` that did not go out; no row if nothing."""
    tables: tuple[str, ...]
    """What its work leaves garbage in."""


@dataclass(frozen=True)
class Start:
    """How the relay's process is started."""

    command: tuple[str, ...]
    ready: str
    """What it prints when it is connected to both servers."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Rival(Protocol):
    """An outbox relay, at its best documented settings."""

    name: str
    version: str
    settings: str
    """What was chosen of its settings, in words."""
    rows: int
    """Messages of a drain, unless somebody asks for less."""
    server: Mapping[str, str]
    """Settings of PostgreSQL that it cannot do without."""
    statements: Statements

    def install(self, say: Say) -> None:
        """Bring it into an environment of its own, if it is not there.

        Raises:
            NotInstallableError: it cannot be had here.
        """

    def prepare(self, database: str) -> None:
        """Make its tables in a new database that has ours already."""

    def start(self, database: str, broker: str) -> Start:
        """Say how it is started."""
