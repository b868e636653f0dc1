"""Where private PostgreSQL servers keep their data: thousands of databases are made and dropped, which a disk's journal slows down."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from relay.devservers.postgres import POSTGRES_FOLDER

MEMORY = Path("/dev/shm")  # noqa: S108 - servers make folders of their own in it
ROOM = 6 << 30
"""Bytes that must be free there, and again as memory."""


def pytest_configure() -> None:
    """Keep them in memory where there is plenty, here and in every process that a test starts; TEST_POSTGRES_FOLDER=/tmp forbids it."""
    if has_room(MEMORY, Path("/proc/meminfo")):
        os.environ.setdefault(POSTGRES_FOLDER, str(MEMORY))


def has_room(folder: Path, meminfo: Path) -> bool:
    """Whether this folder, which is in memory, and the memory itself have room."""
    if not (folder.is_dir() and os.access(folder, os.W_OK) and meminfo.exists()):
        return False
    available = re.search(r"MemAvailable: +(\d+) kB", meminfo.read_text(encoding="ascii"))
    return available is not None and shutil.disk_usage(folder).free >= ROOM and int(available[1]) << 10 >= 2 * ROOM
