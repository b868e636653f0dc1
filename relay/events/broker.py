"""What there is to tell of the broker and its exchanges, as `relay.events` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.events import Event


@dataclass(frozen=True, slots=True)
class BrokerDown(Event):
    """The broker connection is lost or refused; the relay waits."""

    level: ClassVar[str] = "warning"
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class BrokerUp(Event):
    """The broker connection stands."""

    version: str
    host: str = ""
    """Which of them, with its port."""


@dataclass(frozen=True, slots=True)
class BrokerBlocked(Event):
    """The broker sent `connection.blocked`: a resource alarm."""

    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerUnblocked(Event):
    """The resource alarm is over, or the connection that was blocked is."""


@dataclass(frozen=True, slots=True)
class ExchangeQuarantined(Event):
    """A channel died or an exchange is missing: its messages go one at a time until it is proven again."""

    level: ClassVar[str] = "warning"
    exchange: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExchangeProven(Event):
    """An exchange took a message alone; batches go on."""

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
    """The limit of channels is felt no more, or is forgotten: the connection asks for as many channels as it needs."""
