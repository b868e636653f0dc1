"""Keeps the newest figures for a few seconds, so that many open pages cost the database as much as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A value that is read again when it is older than `seconds`; an error is not kept.

    Args:
        read: reads the value; one thread at a time calls it.
        seconds: how long a value is kept.
        clock: seconds that never jump.
    """

    def __init__(self, read: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._seconds, self._clock = read, seconds, clock
        self._lock = threading.Lock()
        self._kept: tuple[float, T] | None = None

    def value(self) -> T:
        """The kept value, or a new one; raises the errors of `read`."""
        with self._lock:
            if self._kept is None or self._clock() - self._kept[0] >= self._seconds:
                self._kept = None
                self._kept = (self._clock(), self._read())
            return self._kept[1]
