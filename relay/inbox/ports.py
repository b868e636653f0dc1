"""The protocols of the receiver's adapters. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relay.inbox.delivery import Delivery, Problem


@dataclass(slots=True)
class DeliveryBatch:
    """Deliveries that are written together, and the tags that acknowledge them."""

    deliveries: list[Delivery]
    tags: dict[Any, int]
    """The last delivery tag of each channel."""


class DeliverySource(Protocol):
    """Source of an inbox's messages."""

    async def take(self, max_deliveries: int, max_bytes: int) -> DeliveryBatch:
        """Wait for deliveries; return at most this number of them, and about this many bytes."""

    def acknowledge(self, batch: DeliveryBatch) -> None:
        """Acknowledge these deliveries."""

    def is_lost(self, batch: DeliveryBatch) -> bool:
        """Whether the broker will redeliver the whole batch."""

    def pause(self) -> None:
        """Stop consuming."""

    def resume(self) -> None:
        """Consume again."""


class InboxStore(Protocol):
    """Writes deliveries; each call is one transaction and may raise StoreError."""

    async def write(self, deliveries: Sequence[Delivery]) -> int:
        """Insert the deliveries that are new in their queue; return how many were."""

    async def reject(self, delivery: Delivery, problem: Problem) -> bool:
        """Archive a delivery as rejected; False if it was received before."""

    async def takes_others(self) -> bool:
        """Whether the inbox takes a message, and commits, just now; what was taken is taken back. Never raises StoreError."""

    async def waiting(self, limit: int) -> int:
        """Messages in the inbox; the count stops above `limit`."""
