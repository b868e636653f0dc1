"""What the receiver asks of its adapters. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relay.inbox.delivery import Delivery, Problem


@dataclass(slots=True)
class DeliveryBatch:
    """Deliveries that are written together, and how they are acknowledged."""

    deliveries: list[Delivery]
    tags: dict[Any, int]
    """The last delivery tag of each channel."""


class DeliverySource(Protocol):
    """Where an inbox's messages come from."""

    async def take(self, most: int, most_bytes: int) -> DeliveryBatch:
        """Wait for deliveries; return what is here, at most so many and about so many bytes."""

    def acknowledge(self, handful: DeliveryBatch) -> None:
        """Tell the broker that these are safe."""

    def is_lost(self, handful: DeliveryBatch) -> bool:
        """Every delivery of it will come again."""

    def pause(self) -> None:
        """Take no more from the queues."""

    def resume(self) -> None:
        """Go on."""


class InboxStore(Protocol):
    """Writes deliveries; each call is one transaction and may raise StoreError."""

    async def write(self, deliveries: Sequence[Delivery]) -> int:
        """Make messages of those that their queue has not brought before; return how many."""

    async def reject(self, delivery: Delivery, problem: Problem) -> bool:
        """Archive one as rejected; False if its queue had brought it before."""

    async def waiting(self, most: int) -> int:
        """Messages in the inbox; a number above `most` stands for all above it."""
