"""Cuts a batch into tasks by number of rows, so that each row is read exactly once. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

STEP = 5_000
"""Rows between two marks. A mark is the transaction id of every STEP-th row; a batch can be cut only at marks."""
LEAST = 20_000
"""The least number of rows of a cut: with fewer rows, a further task costs more than it saves."""
BEYOND = (1 << 63) - 1
"""A number above every transaction id that a lake can store."""


@dataclass(frozen=True)
class RowRange:
    """Rows with `low <= archived_xid < high` and `seq % parts == part`."""

    low: int
    high: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class ExportBatch:
    """What one commit adds: whole transactions from `start` to below `end`, their number of rows, and the marks of `plan_batch`."""

    start: int
    end: int
    rows: int
    marks: tuple[int, ...] = ()


def batch_of(start: int, safe: int, counted: tuple[int, int, Sequence[int]], most: int) -> ExportBatch:
    """The batch that begins at `start`; `plan_batch` has counted at most `most + 1` rows, and `most` is a multiple of STEP.

    A transaction with more than `most` rows is a batch by itself; `rows` and `marks` then cover only the rows that were counted.
    """
    rows, before_last, marks = counted
    if rows <= most:
        return ExportBatch(start, safe, rows, tuple(marks))
    first, after = marks[0], marks[-1]
    if after > first:
        inside = tuple(mark for mark in marks if mark < after)
        return ExportBatch(start, after, before_last, inside)
    return ExportBatch(start, first + 1, rows, tuple(marks))


def cuts(batch: ExportBatch, *, slots: int, largest: int) -> list[RowRange]:
    """Divide the batch into cuts of at most about `largest` rows, for `slots` parallel tasks; each row of the batch is in one cut."""
    target = min(largest, max(LEAST, -(-batch.rows // slots)))
    chosen = batch.marks[:: max(1, -(-target // STEP))]
    often = Counter(chosen)
    return list(_cuts(batch, often, next(iter(often), batch.start)))


def whole(low: int, rows: int, largest: int) -> list[RowRange]:
    """All rows from `low` on, in cuts of about `largest` rows."""
    return list(_divided(low, BEYOND, -(-rows // largest))) if rows else []


def shares(cuts: Sequence[RowRange], number: int) -> tuple[tuple[RowRange, ...], ...]:
    """The cuts, in their order, in at most `number` shares with about equally many cuts; a task reads one share."""
    count = min(number, len(cuts))
    return tuple(tuple(cuts[len(cuts) * part // count : len(cuts) * (part + 1) // count]) for part in range(count))


def _cuts(batch: ExportBatch, often: Counter[int], first: int) -> Iterator[RowRange]:
    """Begin a cut at each mark. A mark that occurs several times is a huge transaction, which is divided by `seq`."""
    low = batch.start
    for mark in sorted(often):
        if mark > low and mark != first:
            yield RowRange(low, mark)
            low = mark
        if often[mark] > 1:
            yield from _divided(low, mark + 1, often[mark])
            low = mark + 1
    if low < batch.end:
        yield RowRange(low, batch.end)


def _divided(low: int, high: int, parts: int) -> Iterable[RowRange]:
    return (RowRange(low, high, part, parts) for part in range(parts))
