"""Words counts for people."""

from __future__ import annotations


def many(number: float, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,.0f} {noun if number == 1 else noun + 's'}"
