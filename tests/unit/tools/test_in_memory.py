"""Where the tests' PostgreSQL keeps its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import in_memory


@pytest.mark.parametrize(
    ("room", "meminfo", "expected"),
    [
        (1 << 20, "MemTotal: 9 kB\nMemAvailable:    2048 kB\n", True),
        (1 << 20, "MemTotal: 9 kB\nMemAvailable:    2047 kB\n", False),
        (1 << 60, f"MemAvailable: {1 << 52} kB\n", False),
        (1 << 20, "MemTotal: 9999999 kB\n", False),
        (1 << 20, None, False),
    ],
    ids=["room", "little memory", "small folder", "old kernel", "no Linux"],
)
def test_data_are_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, meminfo: str | None, expected: bool
) -> None:
    """The folder has that room free, and the machine has twice as much memory."""
    monkeypatch.setattr(in_memory, "ROOM", room)
    if meminfo is not None:
        (tmp_path / "meminfo").write_text(meminfo, encoding="ascii")

    assert expected == in_memory.has_room(tmp_path, tmp_path / "meminfo")
    assert not in_memory.has_room(tmp_path / "absent", tmp_path / "meminfo")
