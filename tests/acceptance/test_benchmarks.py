"""Benchmarks run from their beginning to their end; what they find with so few rows means nothing, and a goal may be missed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

FEW = {
    "designs": ("designs", "--messages=2000", "--rows=3000", "--future=3000"),
    "speed": ("speed", "start", "contracts"),
    "pipeline": ("pipeline", "--rows=3000"),
    "large lakes": ("pipeline", "--long", "--sizes=3000", "--days=1,2", "--a-day=3000"),
}
"""Each benchmark that runs in a minute or so, by its module and options."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bench", FEW)
def test_a_benchmark_measures_something_to_its_end(tmp_path: Path, bench: str) -> None:
    """Its statements and jobs are those of today: nothing else would notice that it ends in an error."""
    module, *options = FEW[bench]
    found = tmp_path / "found.json"
    words = [sys.executable, "-m", f"tests.bench.{module}", *options, "--rounds=1", f"--json={found}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=880, env=os.environ, check=False)
    assert "has the rounds" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    figures: list[dict[str, Any]] = json.loads(found.read_text())["figures"]
    assert len(figures) > 5
    assert [] == [one["name"] for one in figures if not all(isinstance(value, float | int | str) for value in one["rounds"])]
