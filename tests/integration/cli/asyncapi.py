"""The official JSON Schema of AsyncAPI 3, fetched by npm into `build/` when a test asks; nothing of it is kept in the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

PACKAGE = "@asyncapi/specs@6.11.1"
FOLDER = ROOT / "build" / "asyncapi"


def official_schema() -> Any:
    """The schema of AsyncAPI 3.0.0; skips the test with a reason where it cannot be had, which is a failure with REQUIRE_EXAMPLES=1."""
    found = _fetched()
    if isinstance(found, Path):
        return json.loads(found.read_text(encoding="utf-8"))
    if os.environ.get("REQUIRE_EXAMPLES") == "1":
        pytest.fail(found)
    pytest.skip(found)


@cache
def _fetched() -> Path | str:
    """Where the schema is, or why it is not there."""
    path = FOLDER / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"
    if path.exists():
        return path
    if shutil.which("npm") is None:
        return "npm is not installed, which fetches the schema of AsyncAPI (REQUIRE_EXAMPLES=1 makes this a failure)"
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefix", str(FOLDER), PACKAGE]
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=100)
    except subprocess.TimeoutExpired:
        return f"npm did not fetch {PACKAGE} in time (REQUIRE_EXAMPLES=1 makes this a failure)"
    return path if path.exists() else f"npm cannot fetch {PACKAGE} (exit code {done.returncode}; REQUIRE_EXAMPLES=1 makes this a failure)"
