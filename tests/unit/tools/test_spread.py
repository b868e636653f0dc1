"""The order of files where several processes share a run."""

from __future__ import annotations

from pathlib import Path

from tests.support.xdist_order import places


def test_files_of_each_folder_are_spread_over_the_run() -> None:
    """A folder of four and one of two take turns, a test more of a file changes nothing, and each folder keeps its own order."""
    four, two = ([Path(folder, f"test_{number}.py") for number in range(count)] for folder, count in (("a", 4), ("b", 2)))

    place = places([four[0], *four, *two, two[1]])

    assert [four[0], two[0], four[1], four[2], two[1], four[3]] == sorted(place, key=lambda path: place[path])
