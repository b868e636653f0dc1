"""An event loop that never waits: when nothing is ready its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Parameters = ParamSpec("Parameters")


class TimelessLoop(asyncio.SelectorEventLoop):
    """Runs timers in their order, at once."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped = 0.0

    def time(self) -> float:
        """Seconds since some moment, those that were skipped included."""
        return super().time() + self._skipped

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self._skipped += max(0.0, loop._scheduled[0].when() - self.time())
        super()._run_once()  # type: ignore[misc]


def timeless(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run a test on a loop on which every sleep is over at once."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        with asyncio.Runner(loop_factory=TimelessLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
