"""Delays signals while a job commits something and counts it, so that a stopped job still counts every commit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred(hurry: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Delay signals that have a Python handler, until the end of the block, which must be short. Then the first signal's handler is called.

    `hurry` is called as soon as a signal comes, to end work that may take longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hear(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        hurry()

    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first, frame in came[:1]:
            before[signal.Signals(first)](first, frame)
