"""The pipeline's benchmark runs from its beginning to its end; what it finds with so few rows means nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PARTS = [
    (("--rows=3000",), ["export, local[2]", "one day, verify, local[2]", "10,000 rows beside 3,000 : alone"]),
    (
        ("--long", "--sizes=3000", "--days=1,2", "--a-day=3000"),
        ["driver at 3,000 rows: export", "compact of a million rows, a lake of 6,000", "export of 10,000 new rows, a lake of 6,000"],
    ),
]


@pytest.mark.parametrize(("options", "names"), PARTS, ids=["compared", "large"])
def test_each_part_of_the_benchmark_measures_something(tmp_path: Path, options: tuple[str, ...], names: list[str]) -> None:
    """Each round begins a lake of its own, which PostgreSQL must be told; a goal may be missed."""
    found = tmp_path / "found.json"
    words = [sys.executable, "-m", "tests.bench.pipeline", *options, "--rounds=1", f"--json={found}"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, env=os.environ, check=False)
    assert found.exists(), done.stdout + done.stderr
    figures = {one["name"]: one["median"] for one in json.loads(found.read_text())["figures"]}
    assert all(figures[name] > 0 for name in names), figures
