"""Lets signals end a demo cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Make SIGTERM and a lost terminal end the block in the same way as Ctrl-C; the signal that came is added to the list."""
    caught: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        caught.append(number)
        signal.raise_signal(signal.SIGINT)

    # A shell without job control makes background commands ignore SIGINT, so set it in any case. A signal that nohup ignores stays ignored.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
