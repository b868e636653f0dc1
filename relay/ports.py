"""What the core asks of its adapters. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from relay.message import Batch, Outcome, Portion, Settled


class Publisher(Protocol):
    """Sends claimed messages to the broker and says what became of each."""

    @property
    def ready(self) -> bool:
        """Connected and not blocked: claiming makes sense."""

    @property
    def window(self) -> int | None:
        """Upper bound of messages in flight that the broker side asks for, None for no wish."""

    def publish(self, batch: Batch) -> AsyncIterator[Portion]:
        """Publish a batch; yield portions until every claim has had exactly one result.

        Never raises for a message. A portion is yielded when everything is decided, or after a
        short patience with what is decided so far, so that a silent queue holds no neighbour.
        """

    async def wait_ready(self) -> None:
        """Return once `ready` is true."""

    def cut(self) -> None:
        """Give up on confirms: whatever was written is UNKNOWN from now on, the rest UNWRITTEN."""


class Settler(Protocol):
    """Writes outcomes, fenced by the lock token."""

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> Settled:
        """Archive or release each claim of the portion by its outcome; return what really changed.

        Raises:
            StoreError: nothing may be assumed; safe to call again with the same arguments.
        """

    async def renew(self, batch: Batch, claims: Sequence[tuple[int, int]]) -> int:
        """Move the lock of these positions ahead; return how many are still ours."""


class Intake(Protocol):
    """Where claimed batches come from: streams, waiting messages, lanes."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next batch of at most `room` messages and about `room_bytes` bytes, or None when nothing is due.

        Raises:
            StoreError: the database did not answer; retry with backoff.
        """

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of claims, e.g. that the key of an ordered message is free again."""


class Wakeup(Protocol):
    """Hints that the queue has something to claim."""

    async def wait(self, seconds: float) -> None:
        """Return on a hint, or after `seconds`; the poll is the guarantee."""
