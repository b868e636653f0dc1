"""How much of a queue is here unacknowledged, and how many messages the broker may therefore send at a time; no I/O.

RabbitMQ limits only the number of messages. If those here have too many bytes, they return to the queue and the number is reduced. It
doubles when nothing is here and twice as many messages as large as the largest would fit.
"""

from __future__ import annotations

from collections.abc import Iterable


class PrefetchWindow:
    """Messages of one channel by their delivery tags.

    Args:
        most: messages that may be here at any rate.
        most_bytes: bytes in memory of messages that may be here; one message may be larger.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[int, int] = {}
        """Of what is here, by tag, in the order in which it came."""
        self._seen = self._largest = 0
        self.prefetch = most
        """Messages that the broker may send."""
        self.bytes = 0
        """What is here."""

    def take(self, tag: int, size: int) -> bool:
        """Note a message; return whether several messages are here with too many bytes. If so, fewer may come from now on."""
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
        """How many are here."""
        return len(self._sizes)

    @property
    def first(self) -> int | None:
        """The tag of the oldest that is here."""
        return next(iter(self._sizes), None)

    def settle(self, tags: Iterable[int]) -> None:
        """These are acknowledged."""
        for tag in tags:
            self.bytes -= self._sizes.pop(tag)
        # A consumer that follows another on its channel does not count what that one brought.
        if not self._sizes and self._seen >= self.prefetch:
            if 2 * self.prefetch * self._largest <= self._most_bytes:
                self.prefetch = min(self._most, 2 * self.prefetch)
            self._seen = self._largest = 0

    def forget(self) -> None:
        """The channel has ended: its tags mean nothing any more."""
        self._sizes.clear()
        self.bytes = self._seen = self._largest = 0
