"""Figures of several rounds: the median with the spread, as a table and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """What was measured, round by round; `goal` is a sentence such as "≥ 1.5", `met` whether the median reaches it."""

    name: str
    unit: str
    rounds: tuple[float, ...]
    goal: str | None = None
    met: bool | None = None

    @property
    def median(self) -> float:
        """Of the rounds."""
        return statistics.median(self.rounds)

    def as_json(self) -> dict[str, Any]:
        """Everything, with the median."""
        return {**asdict(self), "median": self.median, "lowest": min(self.rounds), "highest": max(self.rounds)}

    def cells(self) -> tuple[str, str, str, str]:
        """A line of the table."""
        spread = f"{_shown(min(self.rounds))} to {_shown(max(self.rounds))}" if len(self.rounds) > 1 else ""
        verdict = "" if self.goal is None else f"{self.goal}: {'met' if self.met else 'MISSED'}"
        return self.name, f"{_shown(self.median)} {self.unit}", spread, verdict


def figure(name: str, unit: str, rounds: Sequence[float], *, least: float | None = None, most: float | None = None) -> Figure:
    """Rounds, and the goal of their median: at least or at most so much."""
    median = statistics.median(rounds)
    if least is not None:
        return Figure(name, unit, tuple(rounds), f"≥ {least:g}", median >= least)
    return Figure(name, unit, tuple(rounds), None if most is None else f"≤ {most:g}", None if most is None else median <= most)


def ratio(name: str, upper: Sequence[float], lower: Sequence[float], *, least: float | None = None, most: float | None = None) -> Figure:
    """`upper` divided by `lower`, round by round."""
    return figure(name, "times", [one / other for one, other in zip(upper, lower, strict=True)], least=least, most=most)


def table(figures: Sequence[Figure]) -> str:
    """Markdown."""
    lines = [("", "median", "rounds", "goal"), ("---", "---", "---", "---"), *(one.cells() for one in figures)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
