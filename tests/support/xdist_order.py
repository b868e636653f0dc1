"""Where several processes share a run: the files of each folder are spread over all of it, since some folders compute and others wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files in a process of `pytest -n`; the tests of a file stay together, and in a run of one process everything does."""
    if hasattr(config, "workerinput"):
        place = places(item.path for item in items)
        items.sort(key=lambda item: place[item.path])


def places(paths: Iterable[Path]) -> Mapping[Path, float]:
    """A place from 0 to 1 for each file, as far along the run as the file is in its folder."""
    folders: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(paths):
        folders.setdefault(path.parent, []).append(path)
    return {path: rank / len(files) for files in folders.values() for rank, path in enumerate(files)}
