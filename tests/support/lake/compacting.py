"""What the tests of compaction share: the files in the folder, the rows of the table, and what happens before a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.pipeline.lake import delta_lake as lake
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import TABLE


def quiet(_line: str) -> None:
    """Say nothing."""


def data_files(lake: Lake) -> list[Path]:
    """The Parquet files in the folder, of whatever version."""
    return [path for path in Path(lake.place.url, TABLE).rglob("*.parquet") if "_delta_log" not in path.parts]


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, looked: bool = False) -> None:
    """Let something happen once between the writing of files and their commit: before the table is looked at for it, or after."""
    owner, name = (lake, "_write") if looked else (lake.Lake, "replace")
    commit = getattr(owner, name)

    def acting(*values: Any, **options: Any) -> None:
        monkeypatch.setattr(owner, name, commit)
        act()
        commit(*values, **options)

    monkeypatch.setattr(owner, name, acting)


def rows_in(lake: Lake) -> list[int]:
    """The numbers of the table's rows."""
    return sorted(lake.dataset(TABLE).to_table(["seq"])["seq"].to_pylist())
