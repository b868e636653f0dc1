"""How fast a line rises: the Theil-Sen slope, which no outlier moves, with the interval of Sen (1968) around it. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Points = Sequence[tuple[float, float]]
"""Pairs of time and value."""
LEAST = 8
"""Points below which nothing can be said of a slope."""
SURE = 1.96
"""Standard deviations for an interval of 95 %."""


class Slope(NamedTuple):
    """Value per unit of time: the median of the slopes between any two points, and the least that 95 % allow."""

    middle: float
    cautious: float


def slope(points: Points) -> Slope | None:
    """The slope of a line through these points; None if they are too few."""
    count = len(points)
    if count < LEAST:
        return None
    found = sorted(_between(points))
    spread = SURE * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = max(0, int((len(found) - spread) / 2))
    return Slope(found[len(found) // 2], found[lowest])


def _between(points: Points) -> list[float]:
    return [
        (later - earlier) / (end - begin)
        for place, (begin, earlier) in enumerate(points)
        for end, later in points[place + 1 :]
        if end > begin
    ]
