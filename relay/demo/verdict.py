"""Ends a demo: prints its tables and whether the sums are right, or reports a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from relay.demo.screen import Screen
from relay.demo.signals import interruptible

_WIDTH: Final = 56
"""The width of the texts, the same in all tables, so that the numbers are aligned."""


def played(screen: Screen, play: Callable[[], int], *, gone: str) -> int:
    """Play a demo and return its exit code, or 128 + the signal that cut it short.

    `gone` names the things that no longer exist after a signal.
    """
    with interruptible() as caught:
        try:
            return play()
        except KeyboardInterrupt:
            screen.say(f"stopped; {gone} are gone")
            return 128 + (caught[0] if caught else signal.SIGINT)


def judged(screen: Screen, tables: Iterable[Table], wrong: Iterable[str]) -> int:
    """Show tables, and a sentence for each mismatch; return 0 if there is no mismatch, else 1."""
    for each in tables:
        screen.show(each)
    sentences = [f"WRONG: {sentence}" for sentence in wrong]
    for line in sentences or ["It adds up."]:
        screen.quote(line)
    return 1 if sentences else 0


def table(what: str, *numbers: str) -> Table:
    """An empty table for texts with their numbers."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    made.add_column(what, min_width=_WIDTH)
    for number in numbers:
        made.add_column(number, justify="right")
    return made


def promise(to: Table, words: str, found: float, limit: int = 0) -> None:
    """Add a row with a promise, the number that was found, and the highest number that is allowed."""
    shown = f"{found:.1f}" if isinstance(found, float) else f"{found}"
    to.add_row(words, shown, "0" if limit == 0 else f"≤ {limit}", style="bold red" if found > limit else None)
