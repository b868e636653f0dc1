"""Events of message contracts; see `relay.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class ContractsHeld(Event):
    """Messages are now checked against this number of contracts."""

    enforced: int
    warned: int


@dataclass(frozen=True, slots=True)
class ContractUnusable(Event):
    """This relay cannot read a contract, so its messages are sent unchecked; logged again after each change of contracts."""

    level: ClassVar[str] = "error"
    exchange: str
    routing_key: str
    version: int
    error: str


@dataclass(frozen=True, slots=True)
class ContractBroken(Event):
    """A message breaks a contract with mode `warn`; it is sent all the same."""

    level: ClassVar[str] = "warning"
    id: str
    exchange: str
    routing_key: str
    detail: str
