"""Keeps the newest figures for a few seconds, so that many open pages cost the database as much as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Generic, NoReturn, TypeVar

from relay.errors import RelayError

T = TypeVar("T")
ERROR_SECONDS = 1.0
"""How long an error is kept. Without this, twenty pages would wait one after the other for a database that does not answer."""


class Latest(Generic[T]):
    """A value that is read again when it is older than `seconds`. An error is kept for a second, so that waiting requests share it.

    Args:
        read: reads the value; one thread at a time calls it.
        seconds: how long a value is kept.
        clock: seconds that never jump.
    """

    def __init__(self, read: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._seconds, self._clock = read, seconds, clock
        self._lock = threading.Lock()
        self._until = -inf
        self._found: Callable[[], T] = read

    def value(self) -> T:
        """The kept value, or a new one; raises the errors of `read`."""
        with self._lock:
            if self._clock() >= self._until:
                self._found, seconds = self._outcome()
                self._until = self._clock() + seconds
            found = self._found
        return found()

    def _outcome(self) -> tuple[Callable[[], T], float]:
        """What returns the value or raises the error, and for how many seconds that is kept."""
        try:
            value = self._read()
        except RelayError as error:
            return partial(_raised, error), ERROR_SECONDS
        return lambda: value, self._seconds


def _raised(error: RelayError) -> NoReturn:
    raise error
