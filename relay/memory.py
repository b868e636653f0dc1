"""Bytes that messages take in memory: one formula for every part that holds messages. No I/O."""

from __future__ import annotations

from typing import Final, TypeVar

KEPT: Final = 1024
"""Bytes that a message takes without its payload and texts: numbers, its id, its places in lists and its result. Measured with 60,000
messages that wait for their settle: 810 (Python 3.11.7, PostgreSQL 15.18). The reason of a failure, or a separate lock, takes more."""
WIDEST: Final = 4
"""Most bytes of a character in a text that is not ASCII (PEP 393)."""
ENTRY: Final = 640
"""Bytes of a cache entry in addition to the size given for the entry."""
CHECKED: Final = 32
"""Bytes of memory for each byte of a content during its check. Measured: 27 for objects with one property of empty name (Python 3.11.7)."""
CHECKING: Final = 96 << 20
"""Bytes that the checking process itself takes, including contracts of 256 KiB."""
Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(dict[Key, Value]):
    """Values that are faster to look up than to compute; the cache is cleared when it is full.

    Args:
        most: most bytes of the whole cache.

    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._size = 0

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Remember a value for a new key; both together take `size` bytes."""
        if self._size + size + ENTRY > self._most:
            self.clear()
            self._size = 0
        self[key] = value
        self._size += size + ENTRY


def of_text(text: str | None) -> int:
    """Most bytes of a text; the figure also covers a second form of the text that Python may cache."""
    if not text:
        return 0
    return len(text) if text.isascii() else WIDEST * len(text)


def of_check(size: int) -> int:
    """Most bytes of the process that checks a content against contracts. There is one such process, and it checks one content at a time."""
    return CHECKING + CHECKED * size
