"""Formats counts and lists for operators."""

from __future__ import annotations

from collections.abc import Sequence

from relay.message import SHOWN


def many(number: float, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,.0f} {noun if number == 1 else noun + 's'}"


def some(texts: Sequence[str]) -> str:
    """The first texts, and the number of the others."""
    return ", ".join(texts[:SHOWN]) + (f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else "")
