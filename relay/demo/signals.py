"""Signals that end a demo in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Within the block SIGTERM and a lost terminal end it as Ctrl-C does; the list gets the signal that came."""
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
