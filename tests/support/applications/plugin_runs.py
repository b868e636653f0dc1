"""Runs of pytest next to an installed package, as an application's developers have it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from tests import ROOT


def import_path(folder: Path) -> str:
    """PYTHONPATH by which the package counts as installed, with the entry points that pyproject.toml has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = folder / "site" / "outbox_relay-0.dist-info"
    installed.mkdir(parents=True)
    points = "".join(f"{name} = {place}\n" for name, place in project["entry-points"]["pytest11"].items())
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{points}", encoding="utf-8")
    return os.pathsep.join([str(installed.parent), str(ROOT)])
