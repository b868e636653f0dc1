"""What a soak was played on, and from which code."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import relay
from tests.bench.machine import processor
from tests.soak.fleet import CODE


def described() -> dict[str, str]:
    """Machine, time and code."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "machine": f"{os.cpu_count()} virtual cores ({processor()}), {memory / (1 << 30):.0f} GB of memory",
        "python": platform.python_version(),
        "commit": commit(),
        "code": str(Path(relay.__file__).parent),
        "load": f"{os.getloadavg()[0]:.1f}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str:
    """The commit that is checked out, with a sign if files differ from it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=CODE, capture_output=True, text=True, check=False).stdout
    return said.strip() or "no checkout"
