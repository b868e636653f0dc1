"""Signals that wait while something is committed and counted, so that a job that is stopped knows what it has done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred(hurry: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Let a signal that has a handler in Python wait for the end of the block, where the handler is called; the block must be short.

    `hurry` is called when the signal comes, and ends what may take longer.
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
