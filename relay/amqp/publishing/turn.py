"""Limits how long one call may write, so that the rest of the process can run between two calls. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TURN: Final = 0.05
"""Seconds of one call. A message with the most headers takes 16 ms to encode: 300 such messages in one call blocked all else for 5 s."""
LOOK_AGAIN: Final = 0.25
"""Seconds after which waiting messages are checked again, even without an answer from the broker: a wait may be over."""


class Turn:
    """The time of one call; a later call does the rest of the work.

    Args:
        clock: monotonic seconds.
        wake: calls a function after a number of seconds.
        resume: continues the work.

    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[float, Callable[[], None]], object], resume: Callable[[], None]) -> None:
        self._clock, self._wake, self._resume = clock, wake, resume
        self._end: float | None = None
        self._paused = self._looks_again = False
        self.over = False
        """Whether the call must leave the rest to a later call."""

    def begin(self) -> bool:
        """Begin a call. Return False if a later call, which will do the work, is already scheduled."""
        self._end, self.over = None, False
        return not self._paused

    def look(self) -> bool:
        """Return whether the call's time is over. The first use starts the time. Steps that never take long need not check it."""
        now = self._clock()
        self._end = self._end or now + TURN
        self.over = now >= self._end
        return self.over

    def pause(self) -> None:
        """Continue in a later call."""
        self._paused = True
        self._wake(0.0, self._go_on)

    def look_again(self) -> None:
        """Check waiting messages again in a while."""
        if not self._looks_again:
            self._looks_again = True
            self._wake(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._looks_again = False
        self._resume()

    def _go_on(self) -> None:
        self._paused = False
        self._resume()
