"""Cuts and batches, without Spark and without a database."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.export.sizes import BOUNDS, Sizes
from relay.pipeline.lake.parquet_writer import DataFile
from relay.pipeline.source.ranges import BEYOND, LEAST, STEP, ExportBatch, RowRange, batch_of, cuts, shares, whole

Rows = list[tuple[int, int]]


def takes(cut: RowRange, xid: int, seq: int) -> bool:
    """What read_cut asks for."""
    return cut.low <= xid < cut.high and seq % cut.parts == cut.part


@given(
    xids=st.lists(st.integers(10, 20) | st.just(15), max_size=60),
    slots=st.integers(1, 5),
    largest=st.integers(1, 200_000),
    more=st.lists(st.tuples(st.integers(5, 30), st.integers(-5, 1_000)), max_size=50),
)
def test_every_row_of_a_batch_belongs_to_exactly_one_cut(xids: list[int], slots: int, largest: int, more: Rows) -> None:
    """Also rows whose transaction begins or ends a cut, huge transactions, and rows that no mark mentions; none of outside."""
    batch = ExportBatch(8, 25, len(xids) * STEP, tuple(sorted(xids)))

    made = cuts(batch, slots=slots, largest=largest)

    for xid, seq in [*more, *((xid, number) for number, xid in enumerate(xids))]:
        assert (1 if 8 <= xid < 25 else 0) == sum(takes(cut, xid, seq) for cut in made)


def test_a_batch_is_cut_evenly_by_count() -> None:
    """A million rows in transactions of one row each, for two tasks: two cuts."""
    marks = tuple(range(100, 100 + 1_000_000, STEP))

    assert [RowRange(0, 500_100), RowRange(500_100, 2_000_000)] == cuts(
        ExportBatch(0, 2_000_000, 1_000_000, marks), slots=2, largest=500_000
    )


def test_a_few_rows_are_one_cut() -> None:
    """A further task costs more than it brings."""
    assert [RowRange(5, 90)] == cuts(ExportBatch(5, 90, LEAST, (7,) * (LEAST // STEP)), slots=8, largest=500_000)


def test_a_huge_transaction_is_divided_by_its_numbers() -> None:
    """400,000 rows of one transaction in files of 100,000."""
    marks = (7,) * (400_000 // STEP)

    made = cuts(ExportBatch(5, 8, 400_000, marks), slots=2, largest=100_000)

    assert [RowRange(5, 8, part, 4) for part in range(4)] == made


def test_a_batch_ends_between_two_transactions() -> None:
    """The transaction of the row after the last is left to the next batch, whole."""
    assert ExportBatch(3, 9, 2 * STEP - 7, (4,)) == batch_of(3, 50, (2 * STEP + 1, 2 * STEP - 7, [4, 9, 9]), 2 * STEP)


def test_a_transaction_larger_than_a_batch_is_a_batch() -> None:
    """It is never split between two commits."""
    assert ExportBatch(3, 10, 2 * STEP + 1, (9, 9, 9)) == batch_of(3, 50, (2 * STEP + 1, 0, [9, 9, 9]), 2 * STEP)


def test_what_is_left_goes_up_to_the_safe_bound() -> None:
    """Also where there is nothing."""
    assert ExportBatch(3, 50, 7, (4,)) == batch_of(3, 50, (7, 3, [4]), STEP)
    assert [RowRange(3, 50)] == cuts(batch_of(3, 50, (0, 0, []), STEP), slots=2, largest=100)


def test_rows_of_a_dump_are_divided_without_an_end() -> None:
    """Whatever ids they have."""
    assert [RowRange(9, BEYOND, 0, 2), RowRange(9, BEYOND, 1, 2)] == whole(9, 200, 100)
    assert [] == whole(9, 0, 100)


def test_the_marks_of_one_batch_count_each_row_once() -> None:
    """A batch that ends in the middle of the marks keeps those below its end."""
    batch = batch_of(1, 99, (3 * STEP + 1, STEP + 9, [2, 3, 5, 5]), 3 * STEP)

    assert (5, Counter({2: 1, 3: 1})) == (batch.end, Counter(batch.marks))


@given(count=st.integers(0, 50), number=st.integers(1, 12))
def test_tasks_share_the_cuts_in_their_order(count: int, number: int) -> None:
    """None twice, none missing, none without a cut, and none with two more than another."""
    made = [RowRange(low, low + 1) for low in range(count)]

    shared = shares(made, number)

    assert made == [cut for share in shared for cut in share]
    assert len(shared) == min(number, count)
    assert max(map(len, shared), default=0) - min(map(len, shared), default=0) <= 1


@given(full=st.integers(1, 1 << 40), tasks=st.integers(1, 64), rows=st.integers(1, 10**9), size=st.integers(0, 1 << 50))
def test_a_commit_has_as_many_rows_as_fill_a_file_in_each_task(full: int, tasks: int, rows: int, size: int) -> None:
    """Within bounds, and as a multiple of what a batch can be cut by."""
    last = CopiedRange((DataFile("part", None, size, rows, "{}"),), 0, 0)

    found = Sizes(full=full).next_rows(last, tasks)

    assert found % STEP == 0
    assert BOUNDS[0] <= found <= BOUNDS[1]
    if BOUNDS[0] < found < BOUNDS[1]:
        assert found * size <= full * tasks * rows < (found + STEP) * max(size, 1)


@pytest.mark.parametrize(("given", "rows"), [(1, STEP), (STEP, STEP), (3 * STEP - 1, 2 * STEP)])
def test_a_commit_has_as_many_rows_as_somebody_chose(given: int, rows: int) -> None:
    """Whatever the last one had; a batch can only be cut at every STEP rows."""
    last = CopiedRange((DataFile("part", None, 1, 1_000_000, "{}"),), 0, 0)

    sizes = Sizes(batch_rows=given)
    assert [rows, rows] == [sizes.first_rows, sizes.next_rows(last, 2)]
