"""Publisher confirms of one channel: which delivery tag belongs to which message; no I/O.

The rules are in RabbitMQ's "Consumer Acknowledgements and Publisher Confirms". Tags count from 1 on each channel. An ack or nack
resolves one tag or, with `multiple`, all tags up to it. The `basic.return` of an unroutable message precedes its ack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from relay.amqp.frames import ReplyReason
from relay.errors import BrokerError

T = TypeVar("T")
COMPACT_ABOVE = 1024
"""How many resolved tags may stay at the start of the list before they are cut off: a cut moves all other tags, so cuts must be rare."""


class Acked(NamedTuple, Generic[T]):
    """The slots that one ack resolved, oldest first."""

    confirmed: list[T]
    returned: list[tuple[T, ReplyReason]]


class ConfirmTracker(Generic[T]):
    """The open tags of one channel; every step is O(1) per tag, over the life of the channel.

    A slot is the caller's object for a tag, which the caller gets back when the tag is resolved. Returns are matched by the relay's own
    id, and only when the ack arrives. So a message that is not returned costs nothing extra.
    """

    def __init__(self, relay_id: Callable[[T], str]) -> None:
        self._relay_id = relay_id
        self._slots: list[T | None] = []
        self._base = 1
        self._low = 0
        self._open = 0
        self._returns: dict[str, list[ReplyReason]] = {}

    def __len__(self) -> int:
        """How many tags the broker has not resolved."""
        return self._open

    @property
    def oldest(self) -> T | None:
        """The slot whose tag has been open longest; None when no tag is open."""
        return self._slots[self._low] if self._open else None

    def open(self, slots: Sequence[T]) -> int:
        """Give the next tags to `slots` in order; return the first of these tags."""
        first = self._base + len(self._slots)
        self._slots.extend(slots)
        self._open += len(slots)
        return first

    def ack(self, tag: int, *, multiple: bool) -> Acked[T]:
        """Resolve one tag, or all tags up to it; a tag that was resolved before resolves nothing.

        Raises:
            BrokerError: the tag was never sent on this channel.
        """
        taken = self._take(tag, multiple=multiple)
        if not self._returns:
            return Acked(taken, [])
        return self._sorted_by_verdict(taken)

    def nack(self, tag: int, *, multiple: bool) -> list[T]:
        """Resolve like `ack`, for a message that the broker refused.

        Raises:
            BrokerError: the tag was never sent on this channel.
        """
        taken = self._take(tag, multiple=multiple)
        if self._returns:
            self._sorted_by_verdict(taken)
        return taken

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """Remember that the broker returned the message with this id; its ack follows."""
        self._returns.setdefault(relay_id, []).append(reason)

    def close(self) -> list[tuple[int, T]]:
        """Give up all open tags and return them with their slots, oldest first; tags count from 1 again, as on a new channel."""
        tags = enumerate(self._slots[self._low :], self._base + self._low)
        unresolved = [(tag, slot) for tag, slot in tags if slot is not None]
        self._slots, self._base, self._low, self._open = [], 1, 0, 0
        self._returns.clear()
        return unresolved

    def _take(self, tag: int, *, multiple: bool) -> list[T]:
        slots = self._slots
        index = tag - self._base
        if multiple and tag == 0:
            index = len(slots) - 1
        if index >= len(slots):
            raise BrokerError(f"The broker confirmed delivery tag {tag}, which was never sent; the connection is dropped and opened again.")
        if index < self._low:
            return []
        if multiple:
            taken = [slot for slot in slots[self._low : index + 1] if slot is not None]
            self._low = index + 1
        elif (slot := slots[index]) is None:
            return []
        else:
            slots[index] = None
            taken = [slot]
        self._open -= len(taken)
        self._forget()
        return taken

    def _forget(self) -> None:
        """Move past resolved tags and release their slots; release all slots when no tag is open, because slots refer to whole messages."""
        slots, low = self._slots, self._low
        if not self._open:
            low = len(slots)
        while low < len(slots) and slots[low] is None:
            low += 1
        if not self._open or (low > COMPACT_ABOVE and low * 2 > len(slots)):
            del slots[:low]
            self._base += low
            low = 0
        self._low = low

    def _sorted_by_verdict(self, taken: list[T]) -> Acked[T]:
        confirmed: list[T] = []
        returned: list[tuple[T, ReplyReason]] = []
        for slot in taken:
            reasons = self._returns.get(key := self._relay_id(slot))
            if reasons is None:
                confirmed.append(slot)
                continue
            returned.append((slot, reasons.pop(0)))
            if not reasons:
                del self._returns[key]
        return Acked(confirmed, returned)
