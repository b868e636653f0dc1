"""The protocols of the receiver's adapters. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from relay.inbox.delivery import Delivery, Problem


class Taken(NamedTuple):
    """A delivery that was taken from its queue, with the channel and tag that acknowledge it."""

    delivery: Delivery
    channel: Any
    tag: int
    """The delivery's tag on its channel; later deliveries have larger tags."""


class DeliverySource(Protocol):
    """Source of an inbox's messages."""

    async def take(self, max_deliveries: int, max_bytes: int) -> list[Taken]:
        """Wait for deliveries; return at most `max_deliveries` deliveries and about `max_bytes` bytes.

        Called while no delivery is being written: now the source may return unacknowledged deliveries to their queues.
        """

    def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Acknowledge these deliveries, and no others, in the order in which they were taken."""

    def is_lost(self, taken: Sequence[Taken]) -> bool:
        """Whether the broker will redeliver all these deliveries."""

    def is_used_up(self, queue: str, unacknowledged: int) -> bool:
        """Whether this number of unacknowledged deliveries uses up a queue's prefetch, so that the broker sends no more."""

    def pause(self) -> None:
        """Stop consuming."""

    def resume(self) -> None:
        """Consume again."""


class InboxStore(Protocol):
    """Writes deliveries; each call is one transaction and may raise StoreError."""

    async def write(self, deliveries: Sequence[Delivery]) -> int:
        """Insert the deliveries that are new in their queue; return how many were new."""

    async def reject(self, delivery: Delivery, problem: Problem) -> bool:
        """Archive a delivery as rejected; return False if the delivery was received before."""

    async def takes_others(self) -> bool:
        """Whether the inbox accepts and commits a test message now; the message is removed again. Never raises StoreError."""

    async def waiting(self, limit: int) -> int:
        """How many messages are in the inbox; the count stops above `limit`."""
