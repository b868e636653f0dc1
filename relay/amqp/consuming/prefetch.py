"""How many messages and bytes of a queue are unacknowledged, and how many messages the broker may therefore send; no I/O.

RabbitMQ limits only the number of messages. If the unacknowledged messages have too many bytes, those that PostgreSQL is not storing yet
return to the queue, and the prefetch count is reduced. The count doubles when nothing is unacknowledged and twice as many messages of the
largest size would fit.
"""

from __future__ import annotations

from collections.abc import Iterable


class PrefetchWindow:
    """Messages of one channel by their delivery tags.

    Args:
        most: the most messages that may be unacknowledged.
        most_bytes: the most bytes in memory of unacknowledged messages; a single message may be larger.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[int, int] = {}
        """Size of each unacknowledged message by tag, in the order of arrival."""
        self._seen = self._largest = 0
        self.prefetch = most
        """The prefetch count: how many messages the broker may send before it waits for acknowledgements."""
        self.bytes = 0
        """Bytes of all unacknowledged messages together."""

    def take(self, tag: int, size: int) -> bool:
        """Note a message; return whether the unacknowledged ones, if several, have too many bytes. If so, reduce the prefetch count."""
        self._sizes[tag] = size
        self.bytes += size
        self._seen += 1
        self._largest = max(self._largest, size)
        if self.bytes <= self._most_bytes or len(self._sizes) == 1:
            return False
        self.prefetch = max(1, min(self.prefetch // 2, self._most_bytes // self._largest))
        return True

    @property
    def messages(self) -> int:
        """How many messages are unacknowledged."""
        return len(self._sizes)

    @property
    def first(self) -> int | None:
        """The tag of the oldest unacknowledged message."""
        return next(iter(self._sizes), None)

    def settle(self, tags: Iterable[int]) -> None:
        """Note that these messages are acknowledged."""
        for tag in tags:
            self.bytes -= self._sizes.pop(tag)
        # A larger count takes a new consumer, for which the broker does not count older messages: wait until none is unacknowledged.
        if not self._sizes and self._seen >= self.prefetch:
            if 2 * self.prefetch * self._largest <= self._most_bytes:
                self.prefetch = min(self._most, 2 * self.prefetch)
            self._seen = self._largest = 0

    def forget(self) -> None:
        """The channel has ended: its tags mean nothing any more."""
        self._sizes.clear()
        self.bytes = self._seen = self._largest = 0
