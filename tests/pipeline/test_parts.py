"""The archive's files in parts for tasks: each row in one part, whatever files there are, and files that cannot be read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from relay.errors import LakeError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files_by_day
from relay.pipeline.lake.splits import Parts
from tests.support.lake.rows import NOON, append, row, table

TODAY = NOON.date()


def _parts(lake: Lake, *, rows: int, days: int = 1) -> Parts:
    files = files_by_day(lake.opened("archive"))
    return Parts.of(lake.place, "archive", [file for number in range(days) for file in files[TODAY + timedelta(days=number)]], rows=rows)


def _grown(lake: Lake, *row_groups: int) -> None:
    """One commit of one file, whose row groups have so many rows."""
    found = table(row(number) for number in range(sum(row_groups)))
    handle = lake.open("archive") or lake.create("archive", found.schema)
    ends = [sum(row_groups[: place + 1]) for place in range(len(row_groups))]
    cuts = [found.slice(end - size, size).combine_chunks().to_batches()[0] for end, size in zip(ends, row_groups, strict=True)]
    lake.append(handle, "archive", cuts)


@pytest.mark.parametrize("rows", [1, 2, 5, 9, 1000])
def test_each_row_is_in_one_part(lake: Lake, rows: int) -> None:
    """Of files of one row group, of many and of uneven ones, cut into any parts."""
    for row_groups in ((9,), (1, 1, 1, 1, 1, 1, 1), (8, 1), (1, 8)):
        _grown(lake, *row_groups)
    parts = _parts(lake, rows=rows)

    read = [number for task in range(len(parts.tasks)) for _, batch in parts.batches(task, ["seq"]) for number in batch["seq"].to_pylist()]
    assert sorted([*range(9), *range(7), *range(9), *range(9)]) == sorted(read)


def test_large_files_are_cut_and_small_ones_read_together(lake: Lake) -> None:
    """Ten row groups of ten rows are four tasks of at most thirty; five files of two rows are one."""
    _grown(lake, *[10] * 10)
    cut = _parts(lake, rows=30)
    assert [1, 1, 1, 1] == [len(task) for task in cut.tasks]
    assert [20, 30, 20, 30] == [sum(batch.num_rows for _, batch in cut.batches(task, ["seq"])) for task in range(4)]

    small = Lake(f"{lake.place.url}-small")
    for number in range(5):
        append(small, row(number), row(number + 5))
    assert [5] == [len(task) for task in _parts(small, rows=30).tasks]


def test_only_the_files_that_were_given_are_read(lake: Lake) -> None:
    """Each batch comes with its day; no file is nothing to do."""
    append(lake, *(row(number, at=NOON + timedelta(days=number)) for number in range(3)))

    found = [(day, batch["seq"].to_pylist()) for day, batch in _parts(lake, rows=100, days=2).batches(0, ["seq"])]
    assert [(TODAY, [0]), (TODAY + timedelta(days=1), [1])] == found
    assert () == Parts.of(lake.place, "archive", []).tasks


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"no such thing")])
def test_a_file_that_cannot_be_read_is_a_sentence(lake: Lake, damage: object) -> None:
    """One that is missing, and one that is something else."""
    append(lake, row())
    [file] = Path(lake.place.table("archive")).rglob("*.parquet")
    assert callable(damage)
    damage(file)

    with pytest.raises(LakeError, match=rf"^The file archive/.*{file.name} of the lake .* is missing or damaged"):
        list(_parts(lake, rows=1).batches(0, ["seq"]))
