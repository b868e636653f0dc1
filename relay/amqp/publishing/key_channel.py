"""Tries the routing keys of an exchange if the broker refuses some of them: one message at a time while refusals continue. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from relay.amqp.publishing.barriers import MARK_EVERY
from relay.amqp.publishing.exchange_channel import ExchangeChannel
from relay.amqp.publishing.publish_batch import Slot
from relay.codec.encoder import Encoded


class KeyChannel(ExchangeChannel):
    """A channel that is never proven, because one key says nothing about the next: each write waits for the answer to the previous one."""

    _newest = False
    """The newest and the oldest message take turns, so that a new message does not wait behind thousands that are refused."""
    _in_a_row = 0
    """Messages accepted since the last refusal. The larger this number, the more messages are written at one time."""

    @property
    def unconfirmed_since(self) -> float | None:
        """When the oldest waiting message was claimed or the oldest message in flight was written, whichever was earlier."""
        waits = [slots[0][0].batch.claimed_tick for slots in (self._accepted, self._suspects, self._waiting) if slots]
        since = super().unconfirmed_since
        return min([*waits, *([] if since is None else [since])], default=None)

    def _took(self, slots: Sequence[Slot]) -> None:
        """Move waiting messages whose key was accepted to the normal route of their exchange."""
        super()._took(slots)
        self._in_a_row += len(slots)
        taken = {job.claims[index].routing_key for job, index in slots}
        if known := [(job, index) for job, index in self._waiting if job.claims[index].routing_key in taken]:
            self._waiting = deque((job, index) for job, index in self._waiting if job.claims[index].routing_key not in taken)
            self._line.reroute(known)

    def _prove(self) -> None:
        """Prove nothing; write one message at a time."""
        self._burst = 1

    def _burst_of(self, source: deque[Slot]) -> int:
        return 1 + self._in_a_row // MARK_EVERY if source is self._waiting else 1

    def _forget_channel(self) -> tuple[list[Slot], list[Slot], list[Slot]]:
        self._in_a_row = 0
        return super()._forget_channel()

    def _next(self, source: deque[Slot], most: int) -> tuple[list[Slot], list[Encoded]]:
        self._newest = not self._newest
        if self._newest:
            source.rotate(1)
        return super()._next(source, most)
