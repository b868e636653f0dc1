"""Latencies as counts per bucket. Counts of windows, keys and exchanges can be added, and give percentiles to within a bucket's width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BOUNDS_MS = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000,
    30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 86_400_000,
)  # fmt: skip
"""Inclusive upper bounds of the buckets in milliseconds; the last bucket is open. `queue_message_bucket_bounds()` is the same list."""

BUCKETS = len(BOUNDS_MS) + 1
_BOUNDS_US = np.array(BOUNDS_MS, dtype=np.int64) * 1000

Integers = npt.NDArray[np.int64]


def bucket_of(microseconds: Integers) -> Integers:
    """The bucket of each latency. A latency that is negative, because a clock was set back, falls into the first bucket."""
    return np.searchsorted(_BOUNDS_US, microseconds, side="left").astype(np.int64)


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """The latency in milliseconds that a share (0 to 1) of the counted messages did not exceed; None if no message was counted.

    The bucket of the nearest rank is exact. Messages are assumed to be spread evenly within the bucket, so the error is less than the
    bucket's width. In the open bucket the result is the lower bound. `queue_message_percentile` gives the same results.
    """
    total = sum(buckets)
    if total == 0:
        return None
    rank = max(float(np.ceil(min(max(share, 0.0), 1.0) * total)), 1.0)
    below = 0
    for number, count in enumerate(buckets):
        if count and below + count >= rank:
            return _within(number, (rank - below) / count)
        below += count
    raise AssertionError("counts are never negative")


def _within(number: int, share: float) -> float:
    lower = float(BOUNDS_MS[number - 1]) if number else 0.0
    if number == len(BOUNDS_MS):
        return lower
    return lower + (BOUNDS_MS[number] - lower) * share
