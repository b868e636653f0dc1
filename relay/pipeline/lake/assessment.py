"""Judges the lake by what PostgreSQL knows of it. `relay status` and the report share these rules, so they never contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["unused", "unseen", "differs", "behind", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecord:
    """A row of the view `queue_message_lake`, with the export's lag and the number of differing partitions.

    Args:
        registered: whether retention waits for the lake.
        exported: whether anything was ever exported.
        seen: whether the lake was seen lately, by the setting `lake_seen_hours`.
        seen_seconds: seconds since the lake was last seen; None if it never was.
        problem: what was wrong with the lake at the last check.
        lag_seconds: age of the oldest archived message that is not exported; 0 if all are exported, None if the age is not known.
        differing: partitions that differ from the lake, or of which it has lost files.
    """

    registered: bool
    exported: bool
    seen: bool
    seen_seconds: float | None
    problem: str | None
    lag_seconds: float | None
    differing: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """The kind of a judgement and its text; only the kind `whole` says that nothing is missing."""

    kind: Kind
    words: str


def judge(state: LakeRecord, length: Callable[[float], str]) -> Judgement:
    """The first judgement that applies: nothing exported, not seen lately, partitions differ, behind, whole. `length` formats seconds."""
    ago = "never seen" if state.seen_seconds is None else f"last seen {length(max(state.seen_seconds, 0))} ago"
    if not state.exported:
        return Judgement("unused", "nothing was exported to a lake yet")
    if not state.seen:
        waits = ": retention waits" if state.registered else ""
        return Judgement("unseen", f"the lake was {ago}{waits}" + (f" ({state.problem})" if state.problem else ""))
    if state.differing:
        partitions = "1 partition" if state.differing == 1 else f"{state.differing} partitions"
        return Judgement("differs", f"the lake does not hold {partitions} of the archive as PostgreSQL knows them; it was {ago}")
    if state.lag_seconds is None:
        return Judgement("behind", f"how far the lake is behind the archive is not known; it was {ago}")
    if state.lag_seconds:
        return Judgement("behind", f"the lake is {length(state.lag_seconds)} behind the archive; it was {ago}")
    return Judgement("whole", f"the lake holds everything that was archived; it was {ago}")
