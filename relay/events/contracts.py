"""What there is to tell of contracts, as `relay.events` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class ContractsHeld(Event):
    """From now on messages are checked against so many contracts."""

    enforced: int
    warned: int


@dataclass(frozen=True, slots=True)
class ContractUnusable(Event):
    """This relay cannot read a contract, whose messages go out unchecked; told whenever contracts have changed."""

    level: ClassVar[str] = "error"
    exchange: str
    routing_key: str
    version: int
    error: str


@dataclass(frozen=True, slots=True)
class ContractBroken(Event):
    """A message goes out although it breaks a contract, whose mode is `warn`."""

    level: ClassVar[str] = "warning"
    id: str
    exchange: str
    routing_key: str
    detail: str
