"""Events of the broker and its exchanges; see `relay.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class BrokerDown(Event):
    """The broker connection is lost or refused; the relay waits and retries."""

    level: ClassVar[str] = "warning"
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class BrokerUp(Event):
    """The broker connection is open."""

    version: str
    host: str = ""
    """The connected host, with its port."""


@dataclass(frozen=True, slots=True)
class BrokerBlocked(Event):
    """The broker sent `connection.blocked`: a resource alarm."""

    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerUnblocked(Event):
    """The resource alarm is over, or the blocked connection is closed."""


@dataclass(frozen=True, slots=True)
class ExchangeQuarantined(Event):
    """An exchange is missing, or its channel was closed: its messages are sent one at a time until one is accepted."""

    level: ClassVar[str] = "warning"
    exchange: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExchangeProven(Event):
    """The broker has accepted a single message of an exchange; batches resume."""

    level: ClassVar[str] = "debug"
    exchange: str


@dataclass(frozen=True, slots=True)
class ChannelsLimited(Event):
    """The broker grants fewer channels than there are exchanges, or queues of a receiver: `sharing` of them take turns at `channels`."""

    level: ClassVar[str] = "warning"
    channels: int
    sharing: int

    @property
    def sentence(self) -> str:
        """For operators."""
        few = "one channel" if self.channels == 1 else f"{self.channels} channels"
        return f"The broker grants {few}, at which {self.sharing} exchanges or queues take turns: raise max-channels or channel_max."


@dataclass(frozen=True, slots=True)
class ChannelsUnlimited(Event):
    """The channel limit no longer matters: the connection opens as many channels as it needs, or nothing has waited for one for long."""
