"""A unit of processor time which a busy machine stretches as much as the work that is measured meanwhile."""

from __future__ import annotations

import json
import time

VALUE = {"id": 1, "names": ["x"] * 20, "inner": {"pad": "e" * 50}}
TRIPS = 100
"""Round trips in one measurement, which take about a millisecond."""


class Yardstick:
    """Round trips of a small value through JSON, a few each time that the work is looked at."""

    def __init__(self) -> None:
        self._trips, self._used = 0, 0.0

    def measure(self) -> None:
        """Make some round trips."""
        began = time.thread_time()
        for _ in range(TRIPS):
            json.loads(json.dumps(VALUE))
        self._used += time.thread_time() - began
        self._trips += TRIPS

    @property
    def seconds(self) -> float:
        """Processor time of one round trip so far."""
        return self._used / self._trips
