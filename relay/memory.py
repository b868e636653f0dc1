"""Bytes that messages take in memory: one formula for all that hold any. No I/O."""

from __future__ import annotations

from typing import Final, TypeVar

KEPT: Final = 1024
"""Bytes that a message takes without its payload and texts: numbers, its id, its places in lists and its result. Measured: 810 by 60,000
messages that wait for their settle (Python 3.11.7, PostgreSQL 15.18); a reason why one failed, or a lock of its own, comes on top."""
WIDEST: Final = 4
"""Bytes of a character in a text that is not ASCII, at the most (PEP 393)."""
ENTRY: Final = 640
"""Bytes of a cache entry in addition to the size that is given for it."""
CHECKED: Final = 32
"""Bytes that one of a content takes while it is checked. Measured: 27 by objects of one property with an empty name (Python 3.11.7)."""
CHECKING: Final = 96 << 20
"""Bytes that the process takes which checks them, contracts of 256 KiB included."""
Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(dict[Key, Value]):
    """What is quicker to remember than to make; it is cleared when it is full.

    Args:
        most: bytes that all of it may take.

    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._size = 0

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Remember a value for a new key; both together take so many bytes."""
        if self._size + size + ENTRY > self._most:
            self.clear()
            self._size = 0
        self[key] = value
        self._size += size + ENTRY


def of_text(text: str | None) -> int:
    """Bytes of a text, at the most; the same before and after Python has kept a second form of it."""
    if not text:
        return 0
    return len(text) if text.isascii() else WIDEST * len(text)


def of_check(size: int) -> int:
    """Bytes that the process which checks a content against contracts may take, at the most; there is one, which checks one at a time."""
    return CHECKING + CHECKED * size
