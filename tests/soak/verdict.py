"""What a soak must show: a ledger that adds up, and lines that do not rise. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from tests.soak.slopes import LEAST, Points, slope

Line = dict[str, Any]
HOUR = 3600.0
SHORTEST = 600.0
"""Seconds of a run below which slopes are not judged: a relay's first minutes are its warming up."""
LONG_LIFE = 900.0
"""Seconds of a killed relay's life from which on its memory is judged."""
MB = 1e6
ALIKE = 1.5
"""A factor. What a claim costs depends on how many messages it finds, and that on how busy the machine is."""


class Limit(NamedTuple):
    """How much a line may rise in an hour: a share of its median, and so much at least."""

    name: str
    """Of the sample's field."""
    title: str
    unit: str
    scale: float
    """What the unit is in units of the field."""
    share: float
    least: float
    """In the unit."""
    reason: str
    like: str | None = None
    """Only samples count in which this field is within `ALIKE` of its median, because the line depends on it."""


LIMITS = (
    Limit("survivor_rss", "memory of the relay that is never killed", "MB", MB, 0.03, 2.0,
          "memory that rises after the first half is never freed; 2 MB an hour would be 50 MB a day"),
    Limit("survivor_fds", "its file descriptors", "", 1, 0, 0.5, "each fault closes the descriptors it opens; one an hour is a leak"),
    Limit("survivor_threads", "its threads", "", 1, 0, 0.5, "as for file descriptors"),
    Limit("postgres_connections", "both relays' connections at PostgreSQL", "", 1, 0, 0.5, "their number is fixed; one an hour is a leak"),
    Limit("rabbitmq_connections", "connections at RabbitMQ", "", 1, 0, 0.5, "as for PostgreSQL"),
    Limit("table_bytes", "queue table", "MB", MB, 0.20, 2.0, "its size is that of the longest backlog, and free space is reused"),
    Limit("index_bytes", "its indexes", "MB", MB, 0.20, 1.0, "claims leave no entries behind, and vacuum frees those of settled messages"),
    Limit("dead_rows", "dead rows in it", "", 1, 0.25, 2000, "autovacuum removes them each minute, so their number goes up and down"),
    Limit("row_buffers", "shared buffers per claimed message", "", 1, 0.30, 3.0,
          "a claim reads its own rows; one that scanned earlier rows would read thousands", like="claim_rows"),
    Limit("ratio_p50", "claim, as a multiple of the control statement, median", "times", 1, 0.50, 1.0,
          "on a shared machine the time of another statement is the measure", like="control_p50"),
    Limit("ratio_p99", "claim, as a multiple of the control statement, p99", "times", 1, 0.50, 2.0,
          "as for the median; the slowest in a hundred are noisy", like="control_p50"),
)  # fmt: skip
LIFE = Limit("victim_rss", "memory of a relay between two kills", "MB", MB, 0.25, 10.0,
             "the second half of a life of 15 minutes or more, which includes some warming up")  # fmt: skip


class Judged(NamedTuple):
    """One line and what is thought of it; without a slope there were too few points."""

    limit: Limit
    median: float | None
    highest: float | None
    slope: float | None
    """In an hour."""
    allowed: float | None
    rises: bool


def judged(lines: Sequence[Line]) -> list[Judged]:
    """Every line that there is a limit for: the second half of the run, and of each long life of the relay that is killed."""
    samples = [line for line in lines if line["kind"] == "sample" and line["calm"]]
    end = max((sample["at"] for sample in samples), default=0.0)
    found = [_judge(limit, _points(limit, samples, end / 2)) for limit in LIMITS]
    return found + [_judge(LIFE, points) for points in _lives(samples)]


def mismatches(lines: Sequence[Line]) -> list[str]:
    """Sentences, one for each thing that is not as it must be; none if the soak was passed."""
    found = [sentence for line in lines for sentence in line.get("problems", ())]
    if not any(line["kind"] == "ledger" for line in lines):
        found.append("The run ended before its ledger was joined.")
    if is_long(lines):
        found += [_sentence(one) for one in judged(lines) if one.rises]
    return found


def is_long(lines: Sequence[Line]) -> bool:
    """Whether the run was long enough for slopes."""
    return max((line["at"] for line in lines if line["kind"] == "sample"), default=0.0) >= SHORTEST


def _judge(limit: Limit, points: Points) -> Judged:
    found = slope(points)
    values = [value for _, value in points]
    if found is None:
        return Judged(limit, statistics.median(values) if values else None, max(values, default=None), None, None, rises=False)
    median = statistics.median(values)
    allowed = max(limit.least, limit.share * median)
    return Judged(limit, median, max(values), found.middle * HOUR, allowed, rises=found.cautious * HOUR > allowed)


def _points(limit: Limit, samples: Sequence[Line], since: float) -> list[tuple[float, float]]:
    told = [sample for sample in samples if sample["at"] >= since and sample.get(limit.name) is not None]
    return [(sample["at"], sample[limit.name] / limit.scale) for sample in _alike(limit, told)]


def _alike(limit: Limit, samples: Sequence[Line]) -> Sequence[Line]:
    """Like is compared with like."""
    levels = [(sample, sample.get(limit.like, 0.0)) for sample in samples] if limit.like else []
    if not levels:
        return samples
    usual = statistics.median(level for _, level in levels)
    return [sample for sample, level in levels if usual / ALIKE <= level <= usual * ALIKE]


def _lives(samples: Sequence[Line]) -> Iterator[Points]:
    lived = [sample for sample in samples if LIFE.name in sample]
    for _, group in groupby(lived, key=lambda sample: sample["victim_life"]):
        life = [*group]
        begin, end = life[0]["at"], life[-1]["at"]
        points = _points(LIFE, life, (begin + end) / 2)
        if end - begin >= LONG_LIFE and len(points) >= LEAST:
            yield points


def _sentence(one: Judged) -> str:
    assert one.slope is not None
    assert one.allowed is not None
    unit = f" {one.limit.unit}".rstrip()
    rise = f"rises by {one.slope:.3g}{unit} an hour, {one.allowed:.3g}{unit} are allowed"
    return f"The line of {one.limit.title} {rise}: {one.limit.reason}."
