"""The output for the operator who runs the demo: lines with the time, and the progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.status import Status

_EVERY = 5.0
"""Seconds between two lines of progress if there is no terminal. A terminal shows one line that changes."""


class Screen:
    """Prints lines and tables and, on a terminal, a line that changes."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._began = time.monotonic()
        self._status: Status | None = None
        self._shown_at = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def say(self, line: str) -> None:
        """Print one line of any text."""
        self._console.print(f"{self.seconds:5.1f} s  {line}", markup=False, soft_wrap=True)

    def show(self, something: RenderableType) -> None:
        """Print a table."""
        self._console.print(something)

    def quote(self, text: str) -> None:
        """Print lines without the time and without markup."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show the texts of `update`, until the end of the block."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status("") as self._status:
            yield
        self._status = None

    def update(self, text: str) -> None:
        """Show the progress; without a terminal only every few seconds."""
        if self._status is not None:
            self._status.update(f"{self.seconds:.0f} s  {text}")
        elif time.monotonic() - self._shown_at > _EVERY:
            self._shown_at = time.monotonic()
            self.say(text)
