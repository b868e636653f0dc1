"""How long one call may write, so that the rest of the process can run between two calls. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TURN: Final = 0.05
"""Seconds. A message with the most headers takes 16 ms to encode: 300 of them in one call stopped everything else for 5 s."""
LOOK_AGAIN: Final = 0.25
"""Seconds after which everything that waits is looked at again, although the broker has said nothing: a wait may be over."""


class Turn:
    """The time of one call; what is left of the work is done by a later one.

    Args:
        clock: monotonic seconds.
        wake: calls a function after so many seconds.
        resume: continues the work.

    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[float, Callable[[], None]], object], resume: Callable[[], None]) -> None:
        self._clock, self._wake, self._resume = clock, wake, resume
        self._end: float | None = None
        self._paused = self._looks_again = False
        self.over = False
        """Whether the call leaves the rest to a later one."""

    def begin(self) -> bool:
        """Begin a call; False while a later one is due, which will do what there is to do."""
        self._end, self.over = None, False
        return not self._paused

    def look(self) -> bool:
        """Return whether the call is over; the first look begins its time. What never takes long need not look."""
        now = self._clock()
        self._end = self._end or now + TURN
        self.over = now >= self._end
        return self.over

    def pause(self) -> None:
        """Continue in a later call."""
        self._paused = True
        self._wake(0.0, self._go_on)

    def look_again(self) -> None:
        """Look in a while at what waits."""
        if not self._looks_again:
            self._looks_again = True
            self._wake(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._looks_again = False
        self._resume()

    def _go_on(self) -> None:
        self._paused = False
        self._resume()
