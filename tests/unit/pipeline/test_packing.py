"""Which files of the lake become one."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from relay.pipeline.compact.packing import Pack, packs
from relay.pipeline.lake.delta_log import LoggedFile

FULL = 100
TODAY = date(2024, 5, 3)
SIZES = st.lists(st.tuples(st.integers(-2, 1), st.integers(1, 150), st.none() | st.integers(0, 9)), max_size=40)


def files_of(sizes: list[tuple[int, int, int | None]]) -> list[LoggedFile]:
    """Files by day from today, bytes and oldest transaction."""
    return [
        LoggedFile(f"{number}.parquet", TODAY + timedelta(days=day), size, size * 10, None, oldest)
        for number, (day, size, oldest) in enumerate(sizes)
    ]


def merged(files: list[LoggedFile], found: list[Pack]) -> list[LoggedFile]:
    """The files of the table after the packs have become one each, with as many bytes."""
    gone = {file for pack in found for file in pack.files}
    new = [
        LoggedFile(f"merged-{number}", pack.day, sum(file.size for file in pack.files), pack.rows, None)
        for number, pack in enumerate(found)
    ]
    return [file for file in files if file not in gone] + new


@given(SIZES)
def test_each_small_file_of_a_day_that_is_over_becomes_part_of_one_that_is_not_too_large(sizes: list[tuple[int, int, int | None]]) -> None:
    """Of its own day, once, and not alone; large ones stay."""
    found = packs(files_of(sizes), TODAY, FULL)
    chosen = [file for pack in found for file in pack.files]

    assert len(chosen) == len(set(chosen))
    assert all({pack.day} == {file.day for file in pack.files} and pack.day < TODAY for pack in found)
    assert all(len(pack.files) > 1 and sum(file.size for file in pack.files) <= FULL for pack in found)
    assert all(file.size < FULL / 2 for file in chosen)
    assert [pack.day for pack in found] == sorted(pack.day for pack in found)


@given(SIZES)
def test_a_second_run_finds_nothing_to_rewrite(sizes: list[tuple[int, int, int | None]]) -> None:
    """At most one small file is left of each day."""
    files = files_of(sizes)
    after = merged(files, packs(files, TODAY, FULL))

    assert [] == packs(after, TODAY, FULL)
    small = [file.day for file in after if file.size < FULL / 2 and file.day is not None and file.day < TODAY]
    assert len(small) == len(set(small))


def test_files_stand_together_by_their_transactions() -> None:
    """So that a reader of a stretch of time reads few of them."""
    files = files_of([(-1, 40, 7), (-1, 40, 1), (-1, 40, 5), (-1, 40, 3)])

    assert [[1, 3], [5, 7]] == [[file.oldest for file in pack.files] for pack in packs(files, TODAY, FULL)]
